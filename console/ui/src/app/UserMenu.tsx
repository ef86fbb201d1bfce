import { Button } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { signOut } from "../access/signing";
import { useSession } from "../api/session";
import { Icon } from "../ui/icons";
import classes from "./app.module.css";
import { DropMenu } from "./DropMenu";

/** Who is signed in, with which role, and the way out. */
export function UserMenu() {
  const session = useSession();
  const navigate = useNavigate();
  const queries = useQueryClient();
  if (!session.isKnown) {
    return (
      <Button component={Link} to="/sign-in" variant="default" leftSection={<Icon name="user" />}>
        Sign in
      </Button>
    );
  }
  const leave = async () => {
    await signOut();
    queries.clear();
    await navigate({ to: "/sign-in" });
  };
  const who = (
    <span className={classes.who}>
      {session.name} <span className="lm-unit">{session.role}</span>
    </span>
  );
  return (
    <DropMenu
      label={who}
      icon="user"
      items={[
        { name: "Sessions and tokens", run: () => void navigate({ to: "/access" }) },
        { name: "Sign out", run: () => void leave() },
      ]}
    />
  );
}
