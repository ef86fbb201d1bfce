import { Button } from "@mantine/core";
import { useHotkeys } from "@mantine/hooks";
import { Outlet, useNavigate, useRouterState } from "@tanstack/react-router";
import { lazy, Suspense, useEffect, useMemo, useRef, useState } from "react";
import { feed } from "../api/events";
import { useRuns } from "../runs/query";
import { Icon } from "../ui/icons";
import classes from "./app.module.css";
import { Crumbs } from "./Crumbs";
import { LiveBadge } from "./LiveBadge";
import { Nav, useNavRun } from "./Nav";
import type { PaletteItem } from "./Palette";
import { SchemeToggle, useNextScheme } from "./SchemeToggle";
import { RUN_SCREENS, TOP_SCREENS } from "./screens";
import { UserMenu } from "./UserMenu";
import { useFeed } from "./useFeed";
import { type Shortcut, useShortcuts, useShortcutsWish } from "./useShortcuts";

/** What opens on a key is not part of the first paint. */
const Palette = lazy(async () => ({ default: (await import("./Palette")).Palette }));
const KeyHelp = lazy(async () => ({ default: (await import("./KeyHelp")).KeyHelp }));

/** Navigation, the live badge and the keys around every screen. */
export function Shell() {
  useFeed();
  const [open, setOpen] = useState<"" | "palette" | "keys">("");
  const [isOn, wish] = useShortcutsWish();
  const shortcuts = useScreenKeys(setOpen);
  useShortcuts(shortcuts, isOn && open === "");
  useHotkeys([["mod+K", () => setOpen("palette")]], []); // in fields too
  useFocusOnPage();
  return (
    <div className={classes.shell}>
      <a className="lm-skip" href="#main">
        Skip to the content
      </a>
      <header className={classes.top}>
        <span className={classes.brand}>
          <img src="/favicon.svg" alt="" width={22} height={22} />
          <span className={classes.brandWord}>Loadmaster</span>
        </span>
        <Crumbs />
        <span className={classes.spring} />
        <Button
          variant="default"
          className={classes.find}
          onClick={() => setOpen("palette")}
          leftSection={<Icon name="search" size={14} />}
        >
          <span className={classes.findWord}>Go to…</span>
          <kbd className={classes.key}>Ctrl K</kbd>
        </Button>
        <LiveBadge />
        <Button variant="subtle" color="gray" px={8} aria-label="Keys" onClick={() => setOpen("keys")}>
          <Icon name="keys" />
        </Button>
        <SchemeToggle />
        <UserMenu />
      </header>
      <Nav />
      <main id="main" className={classes.main} tabIndex={-1}>
        <Outlet />
      </main>
      <Suspense>
        {open === "palette" && <GoTo onClose={() => setOpen("")} showKeys={() => setOpen("keys")} />}
        {open === "keys" && <KeyHelp onClose={() => setOpen("")} shortcuts={shortcuts} isOn={isOn} onWish={wish} />}
      </Suspense>
    </div>
  );
}

function GoTo({ onClose, showKeys }: { onClose: () => void; showKeys: () => void }) {
  return <Palette onClose={onClose} items={usePaletteItems(showKeys)} />;
}

function useScreenKeys(setOpen: (what: "palette" | "keys") => void): Shortcut[] {
  const navigate = useNavigate();
  const run = useNavRun();
  return useMemo(() => {
    const screens = run ? [...TOP_SCREENS, ...RUN_SCREENS] : TOP_SCREENS;
    const search = () => {
      const field = document.querySelector<HTMLElement>("main [data-search]");
      if (field) field.focus();
      else setOpen("palette");
    };
    return [
      ...screens.map(({ name, key, to }) => ({
        keys: `g ${key}`,
        what: name,
        run: () => void navigate({ to, params: { run } }),
      })),
      { keys: "/", what: "Search on this page", run: search },
      {
        keys: ".",
        what: "Pause live numbers, or go on",
        run: () => feed.setPaused(feed.snapshot().status !== "paused"),
      },
      { keys: "?", what: "This list", run: () => setOpen("keys") },
    ];
  }, [navigate, run, setOpen]);
}

function usePaletteItems(showKeys: () => void): PaletteItem[] {
  const navigate = useNavigate();
  const run = useNavRun();
  const { data: runs = [] } = useRuns();
  const { next, turn } = useNextScheme();
  const screens = (run ? [...RUN_SCREENS, ...TOP_SCREENS] : TOP_SCREENS).map(({ name, icon, key, to }) => ({
    id: `screen-${name}`,
    name,
    hint: `g ${key}`,
    icon,
    run: () => void navigate({ to, params: { run } }),
  }));
  const others = runs.map((each) => ({
    id: `run-${each.run}`,
    name: each.run,
    hint: `run, ${each.state}`,
    icon: "runs",
    run: () => void navigate({ to: "/runs/$run", params: { run: each.run } }),
  }));
  return [
    ...screens,
    ...others,
    { id: "theme", name: `Theme: change to ${next}`, icon: "sun", run: turn },
    { id: "keys", name: "Keys", hint: "?", icon: "keys", run: showKeys },
    {
      id: "link",
      name: "Copy a link to this view",
      icon: "link",
      run: () => void navigator.clipboard.writeText(location.href),
    },
  ];
}

/** A change of page, not of its search, moves the focus to the content, so that readers hear it; but not out of a dialog
 * that somebody opened before the page was there. */
function useFocusOnPage(): void {
  const path = useRouterState({ select: (state) => state.resolvedLocation?.pathname });
  const before = useRef<string | undefined>(undefined);
  useEffect(() => {
    if (path === undefined) return;
    if (before.current !== undefined && path !== before.current && !document.querySelector("[role=dialog]")) {
      document.getElementById("main")?.focus({ preventScroll: true });
    }
    before.current = path;
  }, [path]);
}
