import { Button, useMantineColorScheme } from "@mantine/core";
import { Hint } from "../ui";
import { Icon } from "../ui/icons";

const ORDER = ["auto", "light", "dark"] as const;
const ICONS = { auto: "auto", light: "sun", dark: "moon" } as const;

/** The next of auto, light and dark. */
export function useNextScheme(): {
  scheme: (typeof ORDER)[number];
  next: (typeof ORDER)[number];
  turn: () => void;
} {
  const { colorScheme, setColorScheme } = useMantineColorScheme({ keepTransitions: true });
  const next = ORDER[(ORDER.indexOf(colorScheme) + 1) % ORDER.length] ?? "auto";
  return { scheme: colorScheme, next, turn: () => setColorScheme(next) };
}

export function SchemeToggle() {
  const { scheme, next, turn } = useNextScheme();
  return (
    <Hint label={`Theme: ${scheme}. Press for ${next}.`}>
      <Button variant="subtle" color="gray" px={8} onClick={turn} aria-label={`Theme: ${scheme}. Change to ${next}`}>
        <Icon name={ICONS[scheme]} />
      </Button>
    </Hint>
  );
}
