/**
 * The version of envd that clients are told: they switch features on by it. 0.6.4 serves recursive watches with entries,
 * closing of input, uploads as octets, and file metadata; later versions change only what E2B's own hosts do.
 */
export const envdVersion = '0.6.4';
