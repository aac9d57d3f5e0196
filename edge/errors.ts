/** The message of anything thrown, for sentences that people read. */
export const toMessage = (thrown: unknown): string =>
  thrown instanceof Error ? thrown.message : String(thrown);
