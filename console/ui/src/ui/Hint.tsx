import {
  cloneElement,
  type KeyboardEvent,
  type ReactElement,
  useEffect,
  useId,
  useLayoutEffect,
  useRef,
  useState,
} from "react";
import { createPortal } from "react-dom";
import { clamp } from "./clamp";
import classes from "./ui.module.css";

const DELAY_MS = 200;
const GAP_PX = 6;

interface HintProps {
  /** What is said on hover and focus; empty: nothing. */
  label: string;
  children: ReactElement<{ "aria-describedby"?: string }>;
}

/** A word of help about a control, above it. While nobody points at the control it costs one element and no layout. */
export function Hint({ label, children }: HintProps) {
  const id = useId();
  const around = useRef<HTMLSpanElement>(null);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const [isOpen, setOpen] = useState(false);
  const later = () => {
    clearTimeout(timer.current);
    timer.current = setTimeout(() => setOpen(true), DELAY_MS);
  };
  const close = () => {
    clearTimeout(timer.current);
    setOpen(false);
  };
  useEffect(() => () => clearTimeout(timer.current), []);
  const isShown = isOpen && label !== "";
  const describedBy = children.props["aria-describedby"] ?? (isShown ? id : undefined);
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: it only listens to what the control in it gets
    <span
      ref={around}
      className={classes.hintBox}
      onPointerEnter={later}
      onPointerLeave={close}
      onFocus={() => setOpen(true)}
      onBlur={close}
      onKeyDown={(event: KeyboardEvent) => event.key === "Escape" && close()}
    >
      {cloneElement(children, { "aria-describedby": describedBy })}
      {isShown && around.current && createPortal(<Bubble id={id} label={label} of={around.current} />, document.body)}
    </span>
  );
}

function Bubble({ id, label, of }: { id: string; label: string; of: HTMLElement }) {
  const bubble = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const own = bubble.current;
    if (!own) return;
    const [box, size] = [of.getBoundingClientRect(), own.getBoundingClientRect()];
    const left = clamp(box.x + (box.width - size.width) / 2, GAP_PX, innerWidth - size.width - GAP_PX);
    const above = box.top - size.height - GAP_PX;
    own.style.left = `${left}px`;
    own.style.top = `${above < GAP_PX ? box.bottom + GAP_PX : above}px`;
  }, [of]);
  return (
    <div ref={bubble} id={id} role="tooltip" className={classes.hint}>
      {label}
    </div>
  );
}
