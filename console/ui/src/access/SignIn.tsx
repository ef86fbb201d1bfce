import { Button, PasswordInput } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { type FormEvent, useEffect, useRef, useState } from "react";
import { SESSION_KEY } from "../api/session";
import { Command, ProblemNotice } from "../ui";
import classes from "./access.module.css";
import { type Proof, signIn } from "./signing";

/** Trades the code in a one-time link (`#code=…`), or a token that is typed in, for a session. */
export function SignIn() {
  const [token, setToken] = useState("");
  const [error, setError] = useState<unknown>(null);
  const [isBusy, setBusy] = useState(false);
  const enter = useEntry(setError, setBusy);
  useCodeOfLink(enter);
  useEffect(() => {
    document.title = "Sign in · Loadmaster";
  }, []);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    void enter({ token: token.trim() });
  };
  return (
    <main className={classes.signIn} id="main">
      <form className={classes.card} onSubmit={submit}>
        <div className={classes.mark}>
          <img src="/favicon.svg" alt="" width={36} height={36} />
          <h1 className={classes.title}>Sign in to Loadmaster</h1>
        </div>
        {error !== null && <ProblemNotice error={error} />}
        <PasswordInput
          label="Token"
          description="It begins with lm_"
          autoComplete="current-password"
          size="sm"
          value={token}
          onChange={(event) => setToken(event.currentTarget.value)}
          visibilityToggleButtonProps={{ "aria-label": "Show the token" }}
        />
        <Button type="submit" size="sm" disabled={isBusy || !token.trim()}>
          Sign in
        </Button>
        <div className={classes.otherwise}>
          <p>No token? Where the planner runs, this prints a link that signs you in once:</p>
          <Command text="loadmaster sign-in" />
        </div>
      </form>
    </main>
  );
}

function useEntry(setError: (error: unknown) => void, setBusy: (isBusy: boolean) => void) {
  const navigate = useNavigate();
  const queries = useQueryClient();
  return async (proof: Proof) => {
    setBusy(true);
    setError(null);
    try {
      await signIn(proof);
      await queries.invalidateQueries({ queryKey: SESSION_KEY });
      await navigate({ to: "/runs", replace: true });
    } catch (problem) {
      setError(problem);
    } finally {
      setBusy(false);
    }
  };
}

/** Uses the link's code once and takes it out of the address, so that it is in no history. */
function useCodeOfLink(enter: (proof: Proof) => Promise<void>): void {
  const isUsed = useRef(false);
  useEffect(() => {
    const code = new URLSearchParams(location.hash.slice(1)).get("code");
    if (!code || isUsed.current) return;
    isUsed.current = true;
    history.replaceState(history.state, "", location.pathname);
    void enter({ code });
  });
}
