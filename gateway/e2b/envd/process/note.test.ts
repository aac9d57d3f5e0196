import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { endOf } from './end.ts';
import { readNote, writeNote } from './note.ts';

test('a note comes back as it was, and what is too long for it loses its ends but never its tag', () => {
  fc.assert(
    fc.property(
      fc.string({ maxLength: 500 }),
      fc.array(fc.string({ maxLength: 6000 }), { maxLength: 20 }),
      fc.dictionary(fc.stringMatching(/^[A-Z]{1,20}$/), fc.string({ maxLength: 3000 })),
      fc.option(fc.string({ minLength: 1, maxLength: 100 }), { nil: undefined }),
      (cmd, args, envs, tag) => {
        const note = { cmd, args, envs, ...(tag === undefined ? {} : { tag }) };
        const text = writeNote(note);
        assert.match(text, /^[A-Za-z0-9_-]{1,4096}$/);
        const back = readNote(text);
        assert.ok(back !== null);
        assert.equal(back.tag, tag);
        if (JSON.stringify(note).length < 1000) assert.deepEqual(back, JSON.parse(JSON.stringify(note)));
      },
    ),
  );
});

test('what is no note of ours is nobody’s process', () => {
  for (const text of [undefined, '', 'xx', Buffer.from('{"cmd":1}').toString('base64url')])
    assert.equal(readNote(text), null);
});

test('ends are told as Go tells them', () => {
  const clean = { exitCode: 0, exited: true, status: 'exit status 0' };
  assert.deepEqual(endOf({ exitCode: 0, signal: null }), clean);
  const failed = 'exit status 7';
  assert.deepEqual(endOf({ exitCode: 7, signal: null }), {
    exitCode: 7,
    exited: true,
    status: failed,
    error: failed,
  });
  const killed = 'signal: killed';
  assert.deepEqual(endOf({ exitCode: null, signal: 9 }), {
    exitCode: -1,
    exited: false,
    status: killed,
    error: killed,
  });
  assert.equal(endOf({ exitCode: null, signal: 40 }).status, 'signal: signal 40');
});
