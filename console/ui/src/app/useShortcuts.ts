import { useLocalStorage } from "@mantine/hooks";
import { useEffect, useRef } from "react";

export interface Shortcut {
  /** One key, or `g` and another: "?", "g m". */
  keys: string;
  what: string;
  run: () => void;
}

const STORED = "loadmaster.shortcuts";
const SECOND_KEY_MS = 1_200;

/** Whether single keys act, the same for every listener of the tab; people who dictate or bump keys turn them off (WCAG 2.1.4). */
export function useShortcutsWish(): [boolean, (isOn: boolean) => void] {
  const [stored, store] = useLocalStorage({
    key: STORED,
    defaultValue: "on",
    getInitialValueInEffect: false,
    serialize: String,
    deserialize: (text) => text ?? "on",
  });
  return [stored !== "off", (isOn) => store(isOn ? "on" : "off")];
}

/** Typing is never taken for a shortcut. */
export function isTyping(target: EventTarget | null): boolean {
  return (
    target instanceof HTMLElement &&
    (target.isContentEditable || target.matches("input, textarea, select, [role=combobox]"))
  );
}

/** Which shortcut a key completes, given the key before it. */
export function match(shortcuts: Shortcut[], before: string, key: string): Shortcut | undefined {
  const wanted = before ? `${before} ${key}` : key;
  return shortcuts.find((each) => each.keys === wanted);
}

/** Listen for shortcuts on the whole page while `isOn`. Elements that use a key themselves stop it from coming here. */
export function useShortcuts(shortcuts: Shortcut[], isOn: boolean): void {
  const latest = useRef(shortcuts);
  latest.current = shortcuts;
  useEffect(() => {
    if (!isOn) return;
    let before = "";
    let at = 0;
    const press = (event: KeyboardEvent) => {
      if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
      const isSecond = before && Date.now() - at < SECOND_KEY_MS;
      const found = match(latest.current, isSecond ? before : "", event.key);
      before = !isSecond && event.key === "g" ? "g" : "";
      at = Date.now();
      if (!found) return;
      event.preventDefault();
      found.run();
    };
    window.addEventListener("keydown", press);
    return () => window.removeEventListener("keydown", press);
  }, [isOn]);
}
