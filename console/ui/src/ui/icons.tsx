import type { ReactNode } from "react";

/** Small line icons, 16 x 16, drawn in the text's colour. They never stand alone: a word or a label is beside them. */
const PATHS: Record<string, ReactNode> = {
  runs: <path d="M2.5 4h11M2.5 8h11M2.5 12h7" />,
  overview: <path d="M2 13.5h12M4 11V8M7.3 11V4.5M10.6 11V6.5M13.5 11V3" />,
  schedule: <path d="M2 12.5c4 0 4-8 6.5-8S11 9 14 9M2 2v12h12" />,
  revisions: <path d="M5 3.5v9M5 8h3.5a3 3 0 0 0 3-3M5 2.2v1.3M11.5 2.2V5" />,
  graph: <path d="M2 5.5h3.5v5H2zM10.5 2H14v4h-3.500zM10.500 10H14v4h-3.500zM5.500 8h2.500M10.500 4H8v8h2.500" />,
  mesh: <path d="M2.500 2.500h11v11h-11zM2.500 6.200h11M2.500 9.800h11M6.200 2.500v11M9.800 2.500v11" />,
  balance: <path d="M8 2.500v11M4.500 13.500h7M3 4.500h10M3 4.500 1.300 9h3.400zM13 4.500 11.300 9h3.400z" />,
  sources: <path d="M2.500 4c0-2 11-2 11 0s-11 2-11 0zM2.500 4v8c0 2 11 2 11 0V4M2.500 8c0 2 11 2 11 0" />,
  steps: <path d="M2 13.500h3.500V10H9V6.500h3.500V3H14" />,
  checkpoints: <path d="M4 2v12M4 3h8l-2 2.500L12 8H4" />,
  audit: <path d="M3.500 2h9v12h-9zM6 5.500h4M6 8h4M6 10.500h2.500" />,
  access: <path d="M6 9.500a3.200 3.200 0 1 1 1.500-1.200L14 8.300v2.500h-2v-1.200M6 9.500" />,
  search: <path d="M7 12a5 5 0 1 1 0-10 5 5 0 0 1 0 10zM10.700 10.700 14 14" />,
  ok: <path d="m3 8.500 3.300 3.300L13 4.800" strokeWidth={2} />,
  busy: <path d="M5 3.500v9l7-4.500z" />,
  warn: <path d="M8 2 1.800 13.500h12.400zM8 6.500v3.200M8 11.600v.2" />,
  bad: (
    <path d="M5.200 1.800h5.600l3.400 3.400v5.600l-3.400 3.400H5.200l-3.400-3.400V5.200zM5.700 5.700l4.600 4.600M10.300 5.700l-4.600 4.600" />
  ),
  idle: <path d="M8 13.500a5.500 5.500 0 1 1 0-11 5.500 5.500 0 0 1 0 11zM5.500 8h5" />,
  unknown: <path d="M8 13.500a5.500 5.500 0 1 1 0-11 5.500 5.500 0 0 1 0 11z" strokeDasharray="2.400 2" />,
  pause: <path d="M5.500 3.500v9M10.500 3.500v9" strokeWidth={2} />,
  copy: <path d="M5.500 5.500h8v8h-8zM10.500 5.500v-3h-8v8h3" />,
  sun: (
    <path d="M8 11a3 3 0 1 1 0-6 3 3 0 0 1 0 6zM8 1.500v1.500M8 13v1.500M1.500 8H3M13 8h1.500M3.400 3.400l1 1M11.600 11.600l1 1M3.400 12.600l1-1M11.600 4.400l1-1" />
  ),
  moon: <path d="M13.500 9.500A6 6 0 0 1 6.500 2.500a6 6 0 1 0 7 7z" />,
  auto: <path d="M8 13.500a5.500 5.500 0 1 1 0-11 5.500 5.500 0 0 1 0 11zM8 2.500v11M8 5h3.500M8 8h5M8 11h3.500" />,
  keys: <path d="M1.500 4h13v8h-13zM4 6.500h.1M6.700 6.500h.1M9.300 6.500h.1M12 6.500h.1M4.500 9.500h7" />,
  user: <path d="M8 8a3 3 0 1 1 0-6 3 3 0 0 1 0 6zM2.500 14c.5-3 2.800-4 5.500-4s5 1 5.500 4" />,
  close: <path d="m3.500 3.500 9 9M12.500 3.500l-9 9" />,
  chevron: <path d="m4 6 4 4 4-4" />,
  up: <path d="m4 10 4-4 4 4" />,
  table: <path d="M2.500 3h11v10h-11zM2.500 6.300h11M2.500 9.700h11M6.500 3v10" />,
  chart: <path d="M2 2v12h12M4.500 10l3-4 2.500 2 3.500-5" />,
  download: <path d="M8 2v8M4.800 7 8 10.200 11.200 7M2.500 13.500h11" />,
  link: (
    <path d="M6.500 9.500 9.500 6.500M7 4.500l1.700-1.700a3.200 3.200 0 0 1 4.500 4.500L11.500 9M9 11.500l-1.700 1.700a3.200 3.200 0 0 1-4.500-4.500L4.500 7" />
  ),
};

export function Icon({ name, size = 16 }: { name: string; size?: number }) {
  return (
    <svg
      width={size}
      height={size}
      viewBox="0 0 16 16"
      fill="none"
      stroke="currentColor"
      strokeWidth={1.4}
      strokeLinecap="round"
      strokeLinejoin="round"
      aria-hidden="true"
      focusable="false"
      style={{ flex: "none" }}
    >
      {PATHS[name] ?? PATHS.unknown}
    </svg>
  );
}
