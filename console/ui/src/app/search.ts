/** What an address may hold after its `?`, field by field. A field that is missing or nothing of its kind is left out:
 * the screen shows its default then. */
type Read<T> = (value: unknown) => T | undefined;
type Reads<T> = { [K in keyof T]-?: Read<NonNullable<T[K]>> };

/** Text that is not empty; a number that the address was read as, too. */
export const text: Read<string> = (value) =>
  (typeof value === "string" && value) || (typeof value === "number" && String(value)) || undefined;

/** A whole number from 0 on. */
export const count: Read<number> = (value) =>
  typeof value === "number" && Number.isInteger(value) && value >= 0 ? value : undefined;

/** One of a few. */
export const oneOf =
  <T>(known: readonly T[]): Read<T> =>
  (value) =>
    known.find((each) => each === value);

/** Reads an address's search by its fields. */
export const searchOf =
  <T extends object>(reads: Reads<T>) =>
  (search: Record<string, unknown>): T => {
    const found: Partial<T> = {};
    for (const key in reads) {
      const value = reads[key](search[key]);
      if (value !== undefined) found[key] = value;
    }
    return found as T;
  };
