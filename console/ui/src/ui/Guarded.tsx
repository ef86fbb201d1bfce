import { Button, type ButtonProps } from "@mantine/core";
import { type MouseEvent, useId } from "react";
import { type Role, useRefusal } from "../api/session";
import { Hint } from "./Hint";
import classes from "./ui.module.css";

interface GuardedButtonProps extends ButtonProps {
  needs: Role;
  /** Another reason why it cannot be done now; the role's comes first. */
  reason?: string;
  onClick: () => void;
  type?: "button" | "submit";
}

/** A button that stays visible and focusable without permission: disabled, and saying why. */
export function GuardedButton({ needs, reason = "", onClick, children, type = "button", ...rest }: GuardedButtonProps) {
  const refusal = useRefusal(needs) || reason;
  const id = useId();
  return (
    <>
      <Hint label={refusal}>
        <Button
          {...rest}
          type={type}
          onClick={pressed(refusal, onClick)}
          data-disabled={refusal ? true : undefined}
          {...(refusal && { "aria-disabled": true, "aria-describedby": id })}
        >
          {children}
        </Button>
      </Hint>
      <Why id={id} refusal={refusal} />
    </>
  );
}

interface PlainButtonProps {
  /** Why it may not be pressed; empty: it may. */
  refusal: string;
  label: string;
  onClick: () => void;
  children: string;
}

/** The same for long tables, which hold a hundred of it: a plain element, and `refusal` is found once by the table. */
export function PlainButton({ refusal, label, onClick, children }: PlainButtonProps) {
  const id = useId();
  return (
    <>
      <Hint label={refusal}>
        <button
          type="button"
          className={classes.plain}
          aria-label={label}
          onClick={pressed(refusal, onClick)}
          {...(refusal && { "aria-disabled": true, "aria-describedby": id })}
        >
          {children}
        </button>
      </Hint>
      <Why id={id} refusal={refusal} />
    </>
  );
}

const pressed = (refusal: string, onClick: () => void) => (event: MouseEvent) => {
  if (refusal) event.preventDefault();
  else onClick();
};

function Why({ id, refusal }: { id: string; refusal: string }) {
  if (!refusal) return null;
  return (
    <span id={id} className="lm-sr">
      {refusal}
    </span>
  );
}
