import { TextInput } from "@mantine/core";
import { useId, useState } from "react";

interface NameFieldProps {
  label: string;
  /** What can be chosen; hundreds are no trouble, since the browser lists and searches them. */
  names: readonly string[];
  value: string;
  onChange: (name: string) => void;
}

/** One of many names, found by typing a part of it. What is no name leaves the choice as it was. */
export function NameField({ label, names, value, onChange }: NameFieldProps) {
  const id = useId();
  const [typed, setTyped] = useState<string | null>(null);
  const take = (text: string) => {
    setTyped(text);
    if (text !== value && names.includes(text)) onChange(text);
  };
  return (
    <>
      <TextInput
        aria-label={label}
        list={id}
        value={typed ?? value}
        onFocus={() => setTyped("")}
        placeholder={value}
        onBlur={() => setTyped(null)}
        onChange={(event) => take(event.currentTarget.value)}
        w={190}
      />
      <datalist id={id}>{typed !== null && names.map((name) => <option key={name} value={name} />)}</datalist>
    </>
  );
}
