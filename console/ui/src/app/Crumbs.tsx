import { NativeSelect } from "@mantine/core";
import { Link, useNavigate, useParams, useRouterState } from "@tanstack/react-router";
import { useRuns } from "../runs/query";
import classes from "./app.module.css";
import { RUN_SCREENS, TOP_SCREENS } from "./screens";
import { useRun } from "./useRun";

/** Where one is: all runs / this run / this screen. The run can be switched without leaving the screen. */
export function Crumbs() {
  const { run } = useRun();
  const screen = useScreenName();
  return (
    <nav className={classes.crumbs} aria-label="Breadcrumb">
      <ol>
        <li>
          <Link to="/runs" activeOptions={{ exact: true }}>
            Runs
          </Link>
        </li>
        {run && (
          <li>
            <RunSwitcher />
          </li>
        )}
        {screen && screen !== "Runs" && (
          <li aria-current="page" className={classes.crumbHere}>
            {screen}
          </li>
        )}
      </ol>
    </nav>
  );
}

function useScreenName(): string {
  const path = useRouterState({ select: (state) => state.location.pathname });
  const { run = "" } = useParams({ strict: false });
  const here = path.replace(/\/$/, "");
  const resolved = ({ to }: { to: string }) => to.replace("$run", encodeURIComponent(run));
  const isWithin = (screen: { to: string }) => screen.to !== "/runs/$run" && here.startsWith(`${resolved(screen)}/`);
  const exact = [...RUN_SCREENS, ...TOP_SCREENS].find((screen) => resolved(screen) === here);
  return (exact ?? RUN_SCREENS.find(isWithin))?.name ?? "";
}

function RunSwitcher() {
  const { run } = useRun();
  const { data: runs = [] } = useRuns();
  const navigate = useNavigate();
  const path = useRouterState({ select: (state) => state.matches.at(-1)?.fullPath });
  const here = RUN_SCREENS.find((each) => each.to === path)?.to ?? "/runs/$run";
  const names = runs.some((each) => each.run === run)
    ? runs.map((each) => each.run)
    : [run, ...runs.map((each) => each.run)];
  return (
    <NativeSelect
      aria-label="Run"
      className={classes.runSwitch}
      data={names}
      value={run}
      onChange={(event) => void navigate({ to: here, params: { run: event.currentTarget.value } })}
    />
  );
}
