import { Modal, TextInput } from "@mantine/core";
import { type KeyboardEvent, useId, useMemo, useState } from "react";
import { Icon } from "../ui/icons";
import classes from "./app.module.css";

export interface PaletteItem {
  id: string;
  name: string;
  hint?: string;
  icon: string;
  run: () => void;
}

/** Items whose name or hint has all words of `query`, those that begin with it first. */
export function find(items: PaletteItem[], query: string): PaletteItem[] {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const text = (item: PaletteItem) => `${item.name} ${item.hint ?? ""}`.toLowerCase();
  const found = items.filter((item) => words.every((word) => text(item).includes(word)));
  const begins = (item: PaletteItem) => (words[0] && text(item).startsWith(words[0]) ? 0 : 1);
  return found.sort((a, b) => begins(a) - begins(b)).slice(0, 50);
}

/** Ctrl-K: go anywhere, do anything, by typing. */
export function Palette({ onClose, items }: { onClose: () => void; items: PaletteItem[] }) {
  return (
    <Modal
      opened
      onClose={onClose}
      withCloseButton={false}
      title={null}
      padding={0}
      size={560}
      yOffset="12vh"
      aria-label="Commands"
      transitionProps={{ duration: 0 }}
    >
      <PaletteBody items={items} onClose={onClose} />
    </Modal>
  );
}

function PaletteBody({ items, onClose }: { items: PaletteItem[]; onClose: () => void }) {
  const [query, setQuery] = useState("");
  const [at, setAt] = useState(0);
  const listId = useId();
  const found = useMemo(() => find(items, query), [items, query]);
  const chosen = found[Math.min(at, found.length - 1)];
  const act = (item: PaletteItem | undefined) => {
    if (!item) return;
    onClose();
    item.run();
  };
  const press = (event: KeyboardEvent) => {
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (move && found.length) {
      event.preventDefault();
      setAt((at + move + found.length) % found.length);
    } else if (event.key === "Enter") act(chosen);
  };
  return (
    <>
      <TextInput
        data-autofocus
        size="md"
        variant="unstyled"
        className={classes.paletteInput}
        leftSection={<Icon name="search" />}
        placeholder="Go to a screen or run, change a setting"
        aria-label="Command"
        role="combobox"
        aria-expanded
        aria-controls={listId}
        aria-activedescendant={chosen ? `${listId}-${chosen.id}` : undefined}
        value={query}
        onChange={(event) => {
          setQuery(event.currentTarget.value);
          setAt(0);
        }}
        onKeyDown={press}
      />
      <div id={listId} role="listbox" aria-label="Commands" className={classes.paletteList}>
        {found.map((item) => (
          // biome-ignore lint/a11y/useKeyWithClickEvents: the combobox has the keys
          // biome-ignore lint/a11y/useFocusableInteractive: options are pointed at by aria-activedescendant
          <div
            key={item.id}
            id={`${listId}-${item.id}`}
            role="option"
            aria-selected={item === chosen}
            className={classes.paletteItem}
            onClick={() => act(item)}
            onMouseMove={() => setAt(found.indexOf(item))}
          >
            <Icon name={item.icon} />
            <span>{item.name}</span>
            {item.hint && <span className={classes.paletteHint}>{item.hint}</span>}
          </div>
        ))}
      </div>
      {found.length === 0 && <p className={classes.paletteNone}>Nothing is called “{query}”.</p>}
    </>
  );
}
