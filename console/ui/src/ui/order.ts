/** Names by their code units; `localeCompare` would first load the rules of a language. */
export const byName = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);
