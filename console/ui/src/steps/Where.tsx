import { Button, NativeSelect, NumberInput } from "@mantine/core";
import { Icon } from "../ui";
import { type Bounds, go, type Move, type Spot } from "./place";
import classes from "./steps.module.css";

interface WhereProps {
  spot: Spot;
  bounds: Bounds;
  onMove: (spot: Spot) => void;
}

/** Which step, rank and microbatch: to type, to step through, and by keys. */
export function Where({ spot, bounds, onMove }: WhereProps) {
  const shared = { spot, bounds, onMove };
  return (
    <div className={classes.where}>
      <Stepper {...shared} what="step" label="Step" value={spot.step} last={bounds.planned - 1} keys={["p", "n"]} />
      <Stepper {...shared} what="rank" label="Rank" value={spot.rank} last={bounds.worldSize - 1} keys={["k", "j"]} />
      <NativeSelect
        label="Microbatch"
        data={[
          { value: "all", label: "all" },
          ...Array.from({ length: bounds.perRank }, (_, i) => ({ value: String(i), label: String(i) })),
        ]}
        value={spot.microbatch === undefined ? "all" : String(spot.microbatch)}
        onChange={({ currentTarget: { value } }) =>
          onMove({ ...spot, microbatch: value === "all" ? undefined : Number(value) })
        }
        w={84}
      />
    </div>
  );
}

interface StepperProps extends WhereProps {
  what: "step" | "rank";
  label: string;
  value: number;
  last: number;
  keys: [string, string];
}

function Stepper({ spot, bounds, onMove, what, label, value, last, keys }: StepperProps) {
  const move = (sign: "-" | "+") => onMove(go(spot, `${what}${sign}` as Move, bounds));
  return (
    <div className={classes.stepper}>
      <Button
        variant="default"
        px={7}
        aria-label={`Previous ${what} (${keys[0]})`}
        aria-disabled={value <= 0 || undefined}
        onClick={() => move("-")}
      >
        <span className={classes.back}>
          <Icon name="chevron" size={13} />
        </span>
      </Button>
      <NumberInput
        label={label}
        value={value}
        min={0}
        max={Math.max(last, 0)}
        clampBehavior="strict"
        allowDecimal={false}
        hideControls
        onChange={(next) => typeof next === "number" && next !== value && onMove({ ...spot, [what]: next })}
        w={92}
      />
      <Button
        variant="default"
        px={7}
        aria-label={`Next ${what} (${keys[1]})`}
        aria-disabled={value >= last || undefined}
        onClick={() => move("+")}
      >
        <span className={classes.forth}>
          <Icon name="chevron" size={13} />
        </span>
      </Button>
    </div>
  );
}
