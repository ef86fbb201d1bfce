import { Icon } from "../ui";
import type { Domain } from "./color";
import type { Metric } from "./columns";
import classes from "./mesh.module.css";
import { gradient } from "./picture";
import { useDark } from "./useBox";
import { told } from "./words";

/** What the colours of the map mean. */
export function Legend({ metric, domain, silent }: { metric: Metric; domain: Domain; silent: number }) {
  const isDark = useDark();
  return (
    <div className={classes.legend}>
      <span>{told(metric, domain.low)}</span>
      <span className={classes.bar} style={{ background: gradient(isDark) }} aria-hidden="true" />
      <span>{told(metric, domain.high)}</span>
      <span className={classes.hatch} aria-hidden="true" />
      <span>not reporting</span>
      {silent > 0 && (
        <span className={classes.silent}>
          <Icon name="bad" size={12} />
          {silent}
        </span>
      )}
    </div>
  );
}
