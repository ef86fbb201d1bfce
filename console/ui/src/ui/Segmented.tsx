import { useId } from "react";
import classes from "./ui.module.css";

interface SegmentedProps<Value extends string> {
  "aria-label": string;
  value: Value;
  onChange: (value: Value) => void;
  data: readonly { value: Value; label: string }[];
}

/** One of a few: radio buttons side by side. */
export function Segmented<Value extends string>({ value, onChange, data, ...rest }: SegmentedProps<Value>) {
  const name = useId();
  return (
    <div role="radiogroup" className={classes.segmented} {...rest}>
      {data.map((each) => (
        <label key={each.value} className={classes.segment}>
          <input
            type="radio"
            name={name}
            value={each.value}
            checked={each.value === value}
            onChange={() => onChange(each.value)}
          />
          <span>{each.label}</span>
        </label>
      ))}
    </div>
  );
}
