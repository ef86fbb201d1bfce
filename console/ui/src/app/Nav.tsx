import { Link, useParams } from "@tanstack/react-router";
import { useEffect } from "react";
import { Icon } from "../ui/icons";
import classes from "./app.module.css";
import { RUN_SCREENS, type ScreenLink, TOP_SCREENS } from "./screens";

/** Which run the run's screens lead to: the one in the address, else the last one looked at. */
export function useNavRun(): string {
  const { run } = useParams({ strict: false });
  return run ?? sessionStorage.getItem("loadmaster.run") ?? "";
}

export function Nav() {
  const run = useNavRun();
  useEffect(() => {
    if (run) sessionStorage.setItem("loadmaster.run", run);
  }, [run]);
  return (
    <nav className={classes.nav} aria-label="Screens">
      <Group title="All runs" screens={TOP_SCREENS} run={run} />
      {run && (
        <>
          <Group title={run} screens={RUN_SCREENS.filter((each) => each.group === "run")} run={run} />
          <Group title="Data plane" screens={RUN_SCREENS.filter((each) => each.group === "data plane")} run={run} />
          <Group title="History" screens={RUN_SCREENS.filter((each) => each.group === "history")} run={run} />
        </>
      )}
    </nav>
  );
}

function Group({ title, screens, run }: { title: string; screens: ScreenLink[]; run: string }) {
  return (
    <div className={classes.navGroup}>
      <p className={classes.navTitle} title={title}>
        {title}
      </p>
      <ul className={classes.navList}>
        {screens.map((screen) => (
          <li key={screen.to}>
            <Link
              to={screen.to}
              params={{ run }}
              className={classes.navLink}
              activeOptions={{
                exact: screen.to === "/runs" || screen.to === "/runs/$run",
                includeSearch: false,
              }}
              activeProps={{ "aria-current": "page" }}
              title={`${screen.name} (g ${screen.key})`}
            >
              <Icon name={screen.icon} />
              <span className={classes.navWord}>{screen.name}</span>
            </Link>
          </li>
        ))}
      </ul>
    </div>
  );
}
