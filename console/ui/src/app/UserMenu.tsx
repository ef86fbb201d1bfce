import { Button, Menu } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { signOut } from "../access/signing";
import { useSession } from "../api/session";
import { Icon } from "../ui/icons";
import classes from "./app.module.css";

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
  return (
    <Menu position="bottom-end" withinPortal>
      <Menu.Target>
        <Button variant="subtle" color="gray" leftSection={<Icon name="user" />}>
          <span className={classes.who}>
            {session.name} <span className="lm-unit">{session.role}</span>
          </span>
        </Button>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Item onClick={() => void navigate({ to: "/access" })}>Sessions and tokens</Menu.Item>
        <Menu.Item onClick={() => void leave()}>Sign out</Menu.Item>
      </Menu.Dropdown>
    </Menu>
  );
}
