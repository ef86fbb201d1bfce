import { describe, expect, it } from "vitest";
import { formatAge, formatBytes, formatCount, formatExact, formatSeconds, formatShare, formatTime } from "./format";

/** Thin spaces are told as plain ones here. */
const plain = (text: string) => text.replaceAll("\u202f", " ");

describe("numbers for people", () => {
  it.each([
    [0, "0"],
    [7, "7"],
    [0.5, "0.50"],
    [999, "999"],
    [1000, "1.00 k"],
    [85_712, "85.7 k"],
    [12_345_678, "12.3 M"],
    [450e9, "450 G"],
  ])("formatCount(%d)", (value, wanted) => expect(plain(formatCount(value))).toBe(wanted));

  it("formatExact keeps every digit", () => expect(plain(formatExact(1_234_567))).toBe("1 234 567"));

  it.each([
    [0, "0 B"],
    [881, "881 B"],
    [1229, "1.2 KiB"],
    [5 * 2 ** 30, "5.0 GiB"],
  ])("formatBytes(%d)", (value, wanted) => expect(plain(formatBytes(value))).toBe(wanted));

  it.each([
    [0, "0 s"],
    [0.00085, "850 µs"],
    [0.0124, "12.4 ms"],
    [0.257, "257 ms"],
    [2.207, "2.21 s"],
    [18, "18 s"],
    [245, "4 min 5 s"],
    [7380, "2 h 3 min"],
    [200_000, "2 d 7 h"],
  ])("formatSeconds(%d)", (value, wanted) => expect(plain(formatSeconds(value))).toBe(wanted));

  it.each([
    [0.1234, "12.3 %"],
    [0.0052, "0.52 %"],
    [1, "100 %"],
  ])("formatShare(%d)", (value, wanted) => expect(plain(formatShare(value))).toBe(wanted));

  it("formatAge tells what is fresh as now", () => {
    expect(formatAge(0.4)).toBe("now");
    expect(plain(formatAge(8.2))).toBe("8 s ago");
  });

  it("formatTime tells UTC beside local time", () => expect(formatTime(0).utc).toBe("1970-01-01 00:00:00 UTC"));
});
