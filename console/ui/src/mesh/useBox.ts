import { useComputedColorScheme } from "@mantine/core";
import { type RefCallback, useCallback, useRef, useState } from "react";

/** The width of an element in CSS pixels, as it changes; 0 before it is there. */
export function useWidth(): [RefCallback<HTMLElement>, number] {
  const [width, setWidth] = useState(0);
  const observer = useRef<ResizeObserver | null>(null);
  const watch = useCallback((element: HTMLElement | null) => {
    observer.current?.disconnect();
    if (!element) return;
    setWidth(element.clientWidth);
    observer.current = new ResizeObserver(() => setWidth(element.clientWidth));
    observer.current.observe(element);
  }, []);
  return [watch, width];
}

/** Whether the dark theme is on: canvases have no CSS of their own. */
export const useDark = (): boolean => useComputedColorScheme("light") === "dark";

/** A colour of the theme by its CSS variable's name. */
export const themed = (name: string): string =>
  getComputedStyle(document.documentElement).getPropertyValue(name).trim();
