/** The number in [low, high] that is nearest; `low` where there is none. */
export const clamp = (value: number, low: number, high: number): number => Math.max(Math.min(value, high), low);
