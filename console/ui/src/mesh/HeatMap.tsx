import { type KeyboardEvent, type MouseEvent, useEffect, useId, useMemo, useRef, useState } from "react";
import { type Grid, moved } from "./grid";
import classes from "./mesh.module.css";
import { paint } from "./paint";
import { cellSize, type Picture } from "./picture";
import { useDark, useWidth } from "./useBox";

interface HeatMapProps {
  picture: Picture;
  label: string;
  /** The rank that is looked at; undefined: none. */
  selected?: number;
  onSelect: (rank: number) => void;
  /** What a cell says: "rank 77, host-9, data wait 1.2 s". */
  describe: (cell: number) => string;
}

const GUTTER = 118;
const HINT = "Arrow keys move from cell to cell, Enter shows the rank. The same numbers are in the table.";

/** A heat map on a canvas that can be pointed at and walked through by keys. */
export function HeatMap({ picture, label, selected, onSelect, describe }: HeatMapProps) {
  const [box, width] = useWidth();
  const [focus, setFocus] = useState(-1);
  const [hover, setHover] = useState<{ cell: number; x: number; y: number } | null>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const isDark = useDark();
  const cell = useMemo(() => cellSize(picture, Math.max(width - GUTTER, 1)), [picture, width]);
  const place = selected === undefined ? -1 : picture.rank.indexOf(selected);
  const hint = useId();
  useEffect(() => {
    if (canvas.current && width)
      paint(canvas.current, picture, { cell, isDark, gutter: GUTTER, selected: place, focus });
  }, [picture, cell, isDark, width, place, focus]);
  const at = (event: MouseEvent) => cellAt(event, picture, cell);
  const choose = (found: number) => {
    const rank = picture.rank[found] ?? -1;
    if (found >= 0 && rank >= 0) onSelect(rank);
  };
  const press = (event: KeyboardEvent) => {
    const from = focus < 0 ? Math.max(place, 0) : focus;
    if (event.key === "Enter" || event.key === " ") choose(from);
    else if (moved(gridOf(picture), from, event.key) === from && !event.key.startsWith("Arrow")) return;
    else setFocus(moved(gridOf(picture), from, event.key));
    event.preventDefault();
  };
  return (
    <div className={classes.heat} ref={box}>
      <div
        role="application"
        aria-roledescription="heat map"
        aria-label={label}
        aria-describedby={hint}
        // biome-ignore lint/a11y/noNoninteractiveTabindex: a picture that one walks through by keys
        tabIndex={0}
        className={classes.heatFocus}
        onKeyDown={press}
        onFocus={() => setFocus((before) => (before < 0 ? Math.max(place, 0) : before))}
        onBlur={() => setFocus(-1)}
      >
        <canvas
          ref={canvas}
          className={classes.canvas}
          onClick={(event) => choose(at(event))}
          onMouseMove={(event) =>
            setHover({ cell: at(event), x: event.nativeEvent.offsetX, y: event.nativeEvent.offsetY })
          }
          onMouseLeave={() => setHover(null)}
        />
      </div>
      <span id={hint} className="lm-sr">
        {HINT}
      </span>
      <span className="lm-sr" aria-live="polite">
        {focus >= 0 ? describe(focus) : ""}
      </span>
      {hover && hover.cell >= 0 && (
        <div
          className={classes.tip}
          style={{ left: hover.x, top: hover.y }}
          data-left={hover.x > width * 0.66 || undefined}
          aria-hidden="true"
        >
          {describe(hover.cell)}
        </div>
      )}
    </div>
  );
}

function cellAt(event: MouseEvent, picture: Picture, cell: { width: number; height: number }): number {
  const column = Math.floor((event.nativeEvent.offsetX - GUTTER) / cell.width);
  const row = Math.floor(event.nativeEvent.offsetY / cell.height);
  const isInside = column >= 0 && column < picture.columns && row >= 0 && row < picture.rows;
  const found = row * picture.columns + column;
  return isInside && (picture.rank[found] ?? -1) >= 0 ? found : -1;
}

const gridOf = (picture: Picture): Pick<Grid, "columns" | "rows" | "at"> => ({ ...picture, at: picture.rank });
