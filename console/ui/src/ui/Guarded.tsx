import { Button, type ButtonProps, Tooltip } from "@mantine/core";
import { type MouseEvent, useId } from "react";
import { type Role, useRefusal } from "../api/session";

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
  const press = (event: MouseEvent) => {
    if (refusal) event.preventDefault();
    else onClick();
  };
  return (
    <Tooltip label={refusal} disabled={!refusal}>
      <span>
        <Button
          {...rest}
          type={type}
          onClick={press}
          data-disabled={refusal ? true : undefined}
          aria-disabled={refusal ? true : undefined}
          aria-describedby={refusal ? id : undefined}
        >
          {children}
        </Button>
        {refusal && (
          <span id={id} className="lm-sr">
            {refusal}
          </span>
        )}
      </span>
    </Tooltip>
  );
}
