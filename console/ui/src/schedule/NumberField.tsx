import { ActionIcon } from "@mantine/core";
import { type KeyboardEvent, useEffect, useState } from "react";
import classes from "./schedule.module.css";

interface NumberFieldProps {
  label: string;
  value: number;
  /** How the number is written when it is not typed in. */
  show?: (value: number) => string;
  /** What the buttons and the arrow keys add. */
  step: number;
  min?: number;
  isDisabled?: boolean;
  width?: number;
  onCommit: (value: number) => void;
}

/** A number to type, or to change with buttons: taken over with Enter or when one leaves it, given up with Escape. */
export function NumberField({
  label,
  value,
  show = String,
  step,
  min = 0,
  isDisabled,
  width = 84,
  onCommit,
}: NumberFieldProps) {
  const [text, setText] = useState<string | null>(null);
  // biome-ignore lint/correctness/useExhaustiveDependencies: what is typed is given up when the number changes elsewhere
  useEffect(() => setText(null), [value]);
  const commit = () => {
    const typed = text === null ? Number.NaN : numberOf(text);
    setText(null);
    if (Number.isFinite(typed) && typed !== value) onCommit(Math.max(min, typed));
  };
  const add = (by: number) => onCommit(Math.max(min, Number((value + by).toPrecision(12))));
  const press = (event: KeyboardEvent) => {
    if (event.key === "Enter") commit();
    if (event.key === "Escape") setText(null);
    if (event.key === "ArrowUp" || event.key === "ArrowDown") {
      event.preventDefault();
      add(event.key === "ArrowUp" ? step : -step);
    }
  };
  return (
    <span className={classes.numberField}>
      <ActionIcon
        variant="default"
        size={24}
        aria-label={`${label}: less`}
        disabled={isDisabled}
        onClick={() => add(-step)}
      >
        −
      </ActionIcon>
      <input
        className={classes.numberInput}
        style={{ width }}
        aria-label={label}
        inputMode="decimal"
        value={text ?? show(value)}
        disabled={isDisabled}
        onChange={(event) => setText(event.currentTarget.value)}
        onFocus={(event) => event.currentTarget.select()}
        onBlur={commit}
        onKeyDown={press}
      />
      <ActionIcon
        variant="default"
        size={24}
        aria-label={`${label}: more`}
        disabled={isDisabled}
        onClick={() => add(step)}
      >
        +
      </ActionIcon>
    </span>
  );
}

/** What a person typed as a number: spaces group, a comma may be the decimal sign, a percent sign is left out. */
export function numberOf(text: string): number {
  const plain = text.replace(/[\s\u202f%_]/g, "").replace(",", ".");
  return plain === "" ? Number.NaN : Number(plain);
}
