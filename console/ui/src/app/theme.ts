import { type CSSVariablesResolver, createTheme, type MantineColorsTuple } from "@mantine/core";

const harbour: MantineColorsTuple = [
  "#eaf4f9",
  "#d3e7f1",
  "#a6cfe3",
  "#7cc0de",
  "#549fc2",
  "#3a87ac",
  "#2c7699",
  "#206384",
  "#14506b",
  "#0c3c52",
];

/** Mantine's greys of the dark theme, in the blue of ours. */
const slate: MantineColorsTuple = [
  "#e4eaf0",
  "#c3ced8",
  "#a0aebb",
  "#6d7c8a",
  "#3a4754",
  "#2b3640",
  "#202932",
  "#181f26",
  "#11161b",
  "#0d1115",
];

/** Dense, quiet, and with the shades that keep white text readable in both modes. */
export const theme = createTheme({
  primaryColor: "harbour",
  colors: { harbour, dark: slate },
  primaryShade: { light: 8, dark: 8 },
  fontFamily: "var(--lm-sans)",
  fontFamilyMonospace: "var(--lm-mono)",
  defaultRadius: "sm",
  fontSizes: { xs: "0.857rem", sm: "0.929rem", md: "1rem", lg: "1.143rem", xl: "1.429rem" },
  headings: {
    fontWeight: "600",
    sizes: {
      h1: { fontSize: "1.5rem", lineHeight: "1.25" },
      h2: { fontSize: "1.1rem", lineHeight: "1.3" },
      h3: { fontSize: "1rem", lineHeight: "1.35" },
    },
  },
  respectReducedMotion: true,
  cursorType: "pointer",
  components: {
    Button: { defaultProps: { size: "xs" } },
    TextInput: { defaultProps: { size: "xs" } },
    NumberInput: { defaultProps: { size: "xs" } },
    NativeSelect: { defaultProps: { size: "xs" } },
    Textarea: { defaultProps: { size: "xs" } },
  },
});

/** Mantine's own colours follow ours. */
export const variables: CSSVariablesResolver = () => {
  const shared = {
    "--mantine-color-body": "var(--lm-surface)",
    "--mantine-color-text": "var(--lm-text)",
    "--mantine-color-dimmed": "var(--lm-muted)",
    "--mantine-color-placeholder": "var(--lm-muted)",
    "--mantine-color-anchor": "var(--lm-accent)",
    "--mantine-color-disabled": "var(--lm-sunken)",
    "--mantine-color-disabled-color": "var(--lm-muted)",
    "--mantine-color-disabled-border": "var(--lm-line)",
    "--mantine-color-error": "var(--lm-bad)",
    "--mantine-color-default-border": "var(--lm-line-strong)",
  };
  return { variables: {}, light: shared, dark: { ...shared, "--mantine-color-default": "var(--lm-page)" } };
};
