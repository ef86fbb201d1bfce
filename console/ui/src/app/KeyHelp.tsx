import { Modal, Switch } from "@mantine/core";
import classes from "./app.module.css";
import type { Shortcut } from "./useShortcuts";

interface KeyHelpProps {
  onClose: () => void;
  shortcuts: Shortcut[];
  isOn: boolean;
  onWish: (isOn: boolean) => void;
}

/** `?`: all keys, and the switch that turns single keys off. */
export function KeyHelp({ onClose, shortcuts, isOn, onWish }: KeyHelpProps) {
  return (
    <Modal
      opened
      onClose={onClose}
      title="Keys"
      size={520}
      transitionProps={{ duration: 0 }}
      closeButtonProps={{ "aria-label": "Close" }}
    >
      <dl className={classes.keys}>
        <Keys keys="Ctrl K" what="Commands: go to any screen or run" />
        {shortcuts.map((each) => (
          <Keys key={each.keys} keys={each.keys} what={each.what} />
        ))}
        <Keys keys="Esc" what="Close what is open" />
      </dl>
      <Switch
        mt="md"
        checked={isOn}
        onChange={(event) => onWish(event.currentTarget.checked)}
        label="Single-key shortcuts"
        description="Ctrl K works either way."
      />
    </Modal>
  );
}

function Keys({ keys, what }: { keys: string; what: string }) {
  return (
    <div className={classes.keyRow}>
      <dt>
        {keys.split(" ").map((key) => (
          <kbd key={key} className={classes.key}>
            {key}
          </kbd>
        ))}
      </dt>
      <dd>{what}</dd>
    </div>
  );
}
