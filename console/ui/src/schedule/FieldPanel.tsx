import { ActionIcon, Button, NativeSelect } from "@mantine/core";
import type { Knot, Shape } from "../curves/curve";
import { isPast, type KnotRef, type Limits, weightForShare } from "../curves/edit";
import { percent, weight, whole } from "../curves/format";
import { curveIn, fieldLabel, isRetired, type Schedule, shareAt, sourceOf } from "../curves/schedule";
import type { Grid } from "../curves/snap";
import { GuardedButton, Hint, Icon } from "../ui";
import { isSelected } from "./Canvas";
import { NumberField } from "./NumberField";
import classes from "./schedule.module.css";
import type { EditorAction } from "./state";

interface FieldPanelProps {
  field: string;
  draft: Schedule;
  limits: Limits;
  grid: Grid;
  /** Where "Add knot" adds one. */
  at: number;
  selected: readonly KnotRef[];
  isLocked: boolean;
  /** Why nothing can be edited; empty: it can. */
  refusal: string;
  dispatch: (action: EditorAction) => void;
}

const SHAPES = [
  { value: "step", label: "step" },
  { value: "linear", label: "linear" },
  { value: "cosine", label: "cosine" },
];

/** The selected curve as numbers: the same knots as in the picture, to type or to change with buttons. */
export function FieldPanel(props: FieldPanelProps) {
  const { field, draft, limits, at, isLocked, refusal, dispatch } = props;
  const source = sourceOf(field);
  const curve = curveIn(draft, field) ?? [];
  const gone = source !== null && isRetired(draft, source);
  const reason = gone ? `${source} is retired: take it up again to edit it` : isLocked ? `${source} is locked` : "";
  const addAt = Math.max(at, limits.firstFree);
  return (
    <>
      <div className={classes.fieldActions}>
        <GuardedButton
          needs="editor"
          variant="default"
          reason={reason || (curve.some((knot) => knot.at === addAt) ? `there is a knot at step ${addAt}` : "")}
          onClick={() => dispatch({ type: "add", field, at: addAt })}
        >
          Add knot at step {whole(addAt)}
        </GuardedButton>
        {source !== null && (
          <GuardedButton
            needs="editor"
            variant="default"
            reason={isLocked ? `${source} is locked` : ""}
            onClick={() => dispatch({ type: "retire", source, isRetired: !gone })}
          >
            {gone ? "Take up again" : "Retire source"}
          </GuardedButton>
        )}
        {gone && <span className="lm-muted">Retired: drawn from no more; what is queued of it is still served.</span>}
      </div>
      {curve.length === 0 ? (
        <p className="lm-muted">{fieldLabel(field)} has no weight. Add a knot to give it one.</p>
      ) : (
        <KnotTable {...props} curve={curve} isFixed={Boolean(reason || refusal)} />
      )}
    </>
  );
}

function KnotTable(props: FieldPanelProps & { curve: readonly Knot[]; isFixed: boolean }) {
  const { field, curve } = props;
  const source = sourceOf(field);
  return (
    <div className={classes.knotBox}>
      <table className={classes.plainTable} aria-label={`Knots of ${fieldLabel(field)}`}>
        <thead>
          <tr>
            <th scope="col">Knot</th>
            <th scope="col">At step</th>
            <th scope="col">{source === null ? "Value" : "Weight"}</th>
            {source !== null && <th scope="col">Share</th>}
            <th scope="col">Way to the next</th>
            <th scope="col">
              <span className="lm-sr">Actions</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {curve.map((knot, index) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: a knot keeps its place among its neighbours, and so the focus
            <KnotRow key={index} {...props} knot={knot} index={index} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

type KnotRowProps = FieldPanelProps & { curve: readonly Knot[]; knot: Knot; index: number; isFixed: boolean };

function KnotRow(props: KnotRowProps) {
  const { field, knot, index, curve, limits, grid, draft, dispatch } = props;
  const ref = { field, at: knot.at };
  const past = isPast(knot, limits);
  const isFixed = props.isFixed || past;
  const source = sourceOf(field);
  const name = `Knot ${index + 1}`;
  const place = (to: { at?: number; value?: number }) => {
    dispatch({ type: "select", refs: [ref] });
    dispatch({ type: "place", ref, ...to });
  };
  return (
    <tr data-selected={isSelected(props.selected, ref) || undefined}>
      <th scope="row">
        <button type="button" className={classes.knotName} onClick={() => dispatch({ type: "select", refs: [ref] })}>
          {index + 1}
        </button>
        {past && (
          <Hint label={`Steps before ${whole(limits.firstFree)} cannot change any more`}>
            <span className={classes.tag}>past</span>
          </Hint>
        )}
      </th>
      <td>
        <NumberField
          label={`${name}: step`}
          value={knot.at}
          show={whole}
          step={grid.step}
          isDisabled={isFixed}
          onCommit={(at) => place({ at })}
        />
      </td>
      <td>
        <NumberField
          label={`${name}: ${source === null ? "value" : "weight"}`}
          value={knot.value}
          show={source === null ? whole : weight}
          step={grid.value}
          isDisabled={isFixed}
          onCommit={(value) => place({ value })}
        />
      </td>
      {source !== null && (
        <td>
          <ShareField
            {...props}
            source={source}
            name={name}
            isFixed={isFixed}
            onCommit={(value) => place({ value })}
            share={shareAt(draft, source, knot.at)}
          />
        </td>
      )}
      <td>
        {index + 1 < curve.length ? (
          <NativeSelect
            aria-label={`${name}: way to the next`}
            data={SHAPES}
            value={knot.shape}
            disabled={isFixed}
            w={104}
            onChange={(event) => dispatch({ type: "shape", ref, shape: event.currentTarget.value as Shape })}
          />
        ) : (
          <span className="lm-muted">stays</span>
        )}
      </td>
      <td>
        <RowActions {...props} isFixed={isFixed} name={name} source={source} />
      </td>
    </tr>
  );
}

interface ShareFieldProps {
  draft: Schedule;
  source: string;
  knot: Knot;
  name: string;
  share: number;
  isFixed: boolean;
  onCommit: (weight: number) => void;
}

/** The share that a knot's weight makes; to change it changes the weight, and leaves the others in proportion. */
function ShareField({ draft, source, knot, name, share, isFixed, onCommit }: ShareFieldProps) {
  const commit = (shown: number) => {
    const value = weightForShare(draft, source, knot.at, Math.min(99.9, shown) / 100);
    if (value !== null) onCommit(Number(value.toPrecision(6)));
  };
  return (
    <NumberField
      label={`${name}: share in percent`}
      value={Number((share * 100).toPrecision(4))}
      show={(value) => percent(value / 100)}
      step={1}
      width={62}
      isDisabled={isFixed}
      onCommit={commit}
    />
  );
}

function RowActions({
  field,
  knot,
  curve,
  name,
  source,
  isFixed,
  dispatch,
}: KnotRowProps & { name: string; source: string | null }) {
  const ref = { field, at: knot.at };
  return (
    <span className={classes.rowActions}>
      {source !== null && (
        <Hint label="Scale the other sources at this step, but for locked ones, so that the weights sum to what they did">
          <Button
            variant="subtle"
            size="compact-xs"
            disabled={isFixed}
            onClick={() => dispatch({ type: "renormalise", source, at: knot.at })}
          >
            Renormalise others
          </Button>
        </Hint>
      )}
      <ActionIcon
        variant="subtle"
        size={24}
        aria-label={`Remove ${name.toLowerCase()}`}
        disabled={isFixed || curve.length === 1}
        onClick={() => {
          dispatch({ type: "select", refs: [ref] });
          dispatch({ type: "remove" });
        }}
      >
        <Icon name="close" size={13} />
      </ActionIcon>
    </span>
  );
}
