/** A certificate for `*.{domain}`, signed by an authority of our own that is made at the first start and then kept. */
import 'reflect-metadata';
import { webcrypto, X509Certificate } from 'node:crypto';
import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../../../sdk/index.ts';

/** What a listener shows, and the file that clients are told to trust. */
export interface ServerCertificate {
  /** PEM: the certificate and what lies between it and its root. */
  readonly cert: string;
  /** PEM. */
  readonly key: string;
  /** File with the root's certificate; null for a certificate that was brought. */
  readonly caPath: string | null;
}

const dayMs = 86_400_000;
const authorityDays = 3650;
/** Apple's and Chromium's limit for leaves is 398 days. */
const leafDays = 397;
/** A leaf is made anew when less is left of it. */
const renewDays = 30;
const algorithm = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' } as const;

/**
 * Reads `directory`, or makes what is missing, expiring or of another domain there. Files are replaced as a whole; keys are
 * readable by their owner only.
 */
export async function loadOwnCertificate(
  directory: string,
  domain: string,
  deps: { readonly clock: Pick<Clock, 'now'> },
): Promise<ServerCertificate> {
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const now = deps.clock.now();
  const path = (name: string) => join(directory, name);
  const authority = (await readPair(path('ca.pem'), path('ca.key'), now)) ?? (await makeAuthority(path, now));
  const leaf = await readPair(path('server.pem'), path('server.key'), now);
  const fits =
    leaf !== null &&
    new X509Certificate(leaf.cert).checkHost(`x.${domain}`) !== undefined &&
    new X509Certificate(leaf.cert).verify(new X509Certificate(authority.cert).publicKey);
  const served = fits ? leaf : await makeLeaf(authority, domain, path, now);
  return { ...served, caPath: path('ca.pem') };
}

interface Pair {
  readonly cert: string;
  readonly key: string;
}

async function readPair(certPath: string, keyPath: string, now: number): Promise<Pair | null> {
  try {
    const [cert, key] = await Promise.all([readFile(certPath, 'utf8'), readFile(keyPath, 'utf8')]);
    const left = Date.parse(new X509Certificate(cert).validTo) - now;
    return left > renewDays * dayMs ? { cert, key } : null;
  } catch {
    return null; // missing or damaged: it is made anew
  }
}

/** Loaded only when something has to be made: it brings a lot of code along. */
const library = () => import('@peculiar/x509');

const toPem = (label: string, bytes: ArrayBuffer): string => {
  const lines =
    Buffer.from(bytes)
      .toString('base64')
      .match(/.{1,64}/g) ?? [];
  return `-----BEGIN ${label}-----\n${lines.join('\n')}\n-----END ${label}-----\n`;
};

async function newKeys(): Promise<{ keys: webcrypto.CryptoKeyPair; pem: string }> {
  const keys = await webcrypto.subtle.generateKey(algorithm, true, ['sign', 'verify']);
  return { keys, pem: toPem('PRIVATE KEY', await webcrypto.subtle.exportKey('pkcs8', keys.privateKey)) };
}

/** A day of slack, for clients whose clock is behind. */
const validity = (now: number, days: number) => ({
  notBefore: new Date(now - dayMs),
  notAfter: new Date(now + (days - 1) * dayMs),
});

async function makeAuthority(path: (name: string) => string, now: number): Promise<Pair> {
  const x509 = await library();
  const { keys, pem } = await newKeys();
  const certificate = await x509.X509CertificateGenerator.createSelfSigned({
    name: `CN=Snapgate own authority ${new Date(now).toISOString().slice(0, 10)}`,
    keys,
    signingAlgorithm: algorithm,
    ...validity(now, authorityDays),
    extensions: [
      new x509.BasicConstraintsExtension(true, 0, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.keyCertSign | x509.KeyUsageFlags.cRLSign, true),
      await x509.SubjectKeyIdentifierExtension.create(keys.publicKey),
    ],
  });
  return keep({ cert: certificate.toString('pem'), key: pem }, path('ca.pem'), path('ca.key'));
}

async function makeLeaf(
  authority: Pair,
  domain: string,
  path: (name: string) => string,
  now: number,
): Promise<Pair> {
  const x509 = await library();
  const issuer = new x509.X509Certificate(authority.cert);
  const der = Buffer.from(authority.key.replace(/-----[^-]+-----|\s/g, ''), 'base64');
  const signingKey = await webcrypto.subtle.importKey('pkcs8', der, algorithm, false, ['sign']);
  const { keys, pem } = await newKeys();
  const certificate = await x509.X509CertificateGenerator.create({
    subject: `CN=*.${domain}`.slice(0, 67),
    issuer: issuer.subject,
    publicKey: keys.publicKey,
    signingKey,
    signingAlgorithm: algorithm,
    ...validity(now, leafDays),
    extensions: [
      new x509.BasicConstraintsExtension(false, undefined, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.digitalSignature, true),
      new x509.ExtendedKeyUsageExtension([x509.ExtendedKeyUsage.serverAuth]),
      new x509.SubjectAlternativeNameExtension([
        ...[`*.${domain}`, domain, `*.fn.${domain}`, 'localhost'].map((value) => ({
          type: 'dns' as const,
          value,
        })),
        { type: 'ip', value: '127.0.0.1' },
        { type: 'ip', value: '::1' },
      ]),
      await x509.AuthorityKeyIdentifierExtension.create(issuer),
      await x509.SubjectKeyIdentifierExtension.create(keys.publicKey),
    ],
  });
  return keep({ cert: certificate.toString('pem'), key: pem }, path('server.pem'), path('server.key'));
}

/** The key first: a certificate whose key is missing is made anew, a key alone harms nobody. */
async function keep(pair: Pair, certPath: string, keyPath: string): Promise<Pair> {
  const cert = pair.cert.endsWith('\n') ? pair.cert : `${pair.cert}\n`;
  for (const [path, text, mode] of [
    [keyPath, pair.key, 0o600],
    [certPath, cert, 0o644],
  ] as const) {
    await writeFile(`${path}.new`, text, { mode });
    await rename(`${path}.new`, path);
  }
  return { cert, key: pair.key };
}
