import { NativeSelect, TextInput } from "@mantine/core";
import { Icon } from "./icons";

/** What a list is filtered by; empty fields are left out, so that they leave the address. */
export interface NameAndStateValue {
  q?: string;
  state?: string;
}

/** Fields that filter a list by name and state; `/` leads to the first. */
export function NameAndState({
  what,
  states,
  value,
  onChange,
}: {
  what: string;
  states: readonly (string | { value: string; label: string })[];
  value: NameAndStateValue;
  onChange: (changed: NameAndStateValue) => void;
}) {
  return (
    <>
      <TextInput
        data-search
        aria-label={`Search ${what} by name`}
        placeholder="Search by name"
        leftSection={<Icon name="search" size={13} />}
        value={value.q ?? ""}
        onChange={(event) => onChange({ q: event.currentTarget.value || undefined })}
      />
      <NativeSelect
        aria-label="State"
        data={[{ value: "", label: "Any state" }, ...states]}
        value={value.state ?? ""}
        onChange={(event) => onChange({ state: event.currentTarget.value || undefined })}
      />
    </>
  );
}
