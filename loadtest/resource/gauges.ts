/** Figures of the server's side that are sampled while a run is on, one value per sample over all nodes. */
export const gauges = {
  cpu_cores: { unit: 'number', title: 'CPU in use on the host, cores' },
  memory_pss_bytes: { unit: 'bytes', title: 'memory of all machines, shared pages counted once' },
  memory_private_bytes: { unit: 'bytes', title: 'private guest pages of all machines' },
  memory_per_machine_bytes: { unit: 'bytes', title: 'memory per machine (PSS)' },
  page_cache_bytes: { unit: 'bytes', title: 'page cache of the host' },
  disk_bytes: { unit: 'bytes', title: 'disk: versions, snapshots and scratch layers' },
  machines: { unit: 'number', title: 'machines of any state' },
  machines_ready: { unit: 'number', title: 'ready machines' },
  machines_blank: { unit: 'number', title: 'blank VMMs' },
  machines_leased: { unit: 'number', title: 'leased machines' },
} as const satisfies Record<string, { unit: 'bytes' | 'number'; title: string }>;
export type GaugeName = keyof typeof gauges;

/** One sample; a gauge that the server does not report is absent, never 0. */
export interface ResourceSample {
  /** Milliseconds from the start of what is measured. */
  readonly atMs: number;
  readonly values: Readonly<Partial<Record<GaugeName, number>>>;
}
