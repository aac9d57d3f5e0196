import type { E2bAccess } from '../runtime.ts';

/** What configures programs that use an E2B SDK, to be pasted into a shell. @param apiKey null where it must not be shown */
export function e2bExports({ domain, caPath }: E2bAccess, apiKey: string | null): string {
  const trust =
    caPath === null
      ? []
      : [
          `export NODE_EXTRA_CA_CERTS=${caPath}   # JavaScript`,
          `export SSL_CERT_FILE=${caPath}         # Python: only this authority is trusted then`,
        ];
  return [
    'Programs that use an E2B SDK run here with',
    `  export E2B_DOMAIN=${domain}`,
    `  export E2B_API_KEY=${apiKey ?? '<a key; snapgate keys create makes one>'}`,
    ...trust.map((line) => `  ${line}`),
    `and names below ${domain.replace(/:\d+$/, '')} that lead to this machine (docs/e2b.md).`,
    '',
  ].join('\n');
}
