/** Makes this process a host on which E2B's SDKs find a gateway of a test. */
import dns from 'node:dns';
import { readFile } from 'node:fs/promises';
import { mock } from 'node:test';
import { getCACertificates, setDefaultCACertificates } from 'node:tls';

/**
 * Trusts the authority of `caPath`, and leads names below `domain` to this host. A hosts file knows no wildcards, and a test
 * must not change the resolver of its machine. Disposing undoes both.
 */
export async function becomeClientHost(caPath: string, domain: string): Promise<Disposable> {
  const usual = getCACertificates();
  setDefaultCACertificates([...usual, await readFile(caPath, 'utf8')]);
  const suffix = `.${domain.replace(/:\d+$/, '')}`;
  const lookup = dns.lookup.bind(dns) as (...words: unknown[]) => void;
  const mocked = mock.method(dns, 'lookup', ((name: string, ...rest: unknown[]) => {
    const options = rest[0] as { all?: boolean } | undefined;
    const done = rest.at(-1) as (...answer: unknown[]) => void;
    if (!name.endsWith(suffix)) return lookup(name, ...rest);
    const address = '127.0.0.1';
    const all = typeof options === 'object' && options.all === true;
    process.nextTick(() => (all ? done(null, [{ address, family: 4 }]) : done(null, address, 4)));
  }) as typeof dns.lookup);
  return {
    [Symbol.dispose]() {
      mocked.mock.restore();
      setDefaultCACertificates(usual);
    },
  };
}
