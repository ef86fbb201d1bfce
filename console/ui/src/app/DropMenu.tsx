import { Button } from "@mantine/core";
import { type FocusEvent, type KeyboardEvent, type ReactNode, useEffect, useRef, useState } from "react";
import { Icon } from "../ui/icons";
import classes from "./app.module.css";

interface DropMenuProps {
  label: ReactNode;
  icon: string;
  items: readonly { name: string; run: () => void }[];
}

const STEPS: Record<string, (at: number, count: number) => number> = {
  ArrowDown: (at, count) => (at + 1) % count,
  ArrowUp: (at, count) => (at + count - 1) % count,
  Home: () => 0,
  End: (_, count) => count - 1,
};

/** A button with a list of actions below it. Arrows, Home and End walk through it; Escape and leaving it close it. */
export function DropMenu({ label, icon, items }: DropMenuProps) {
  const [isOpen, setOpen] = useState(false);
  const [box, list] = [useRef<HTMLDivElement>(null), useRef<HTMLDivElement>(null)];
  useEffect(() => {
    if (isOpen) entries(list.current)[0]?.focus();
  }, [isOpen, list]);
  const close = () => {
    setOpen(false);
    box.current?.querySelector("button")?.focus();
  };
  const step = (event: KeyboardEvent) => {
    const all = entries(list.current);
    const next = STEPS[event.key]?.(all.indexOf(document.activeElement as HTMLElement), all.length);
    if (event.key === "Escape" && isOpen) close();
    if (next === undefined || !isOpen) return;
    event.preventDefault();
    all[next]?.focus();
  };
  const leave = (event: FocusEvent) => !box.current?.contains(event.relatedTarget) && setOpen(false);
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: keys of the button and of the menu in it
    <div ref={box} className={classes.dropBox} onKeyDown={step} onBlur={leave}>
      <Button
        variant="subtle"
        color="gray"
        leftSection={<Icon name={icon} />}
        aria-haspopup="menu"
        aria-expanded={isOpen}
        onClick={() => setOpen(!isOpen)}
      >
        {label}
      </Button>
      {isOpen && (
        <div ref={list} role="menu" className={classes.drop}>
          {items.map(({ name, run }) => (
            <button
              key={name}
              type="button"
              role="menuitem"
              tabIndex={-1}
              className={classes.dropItem}
              onClick={() => {
                close();
                run();
              }}
            >
              {name}
            </button>
          ))}
        </div>
      )}
    </div>
  );
}

const entries = (list: HTMLElement | null): HTMLElement[] => [
  ...(list?.querySelectorAll<HTMLElement>("[role=menuitem]") ?? []),
];
