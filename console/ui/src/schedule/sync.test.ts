// @vitest-environment node
import { expect, test } from "vitest";
import { curve, schedule } from "../curves/testing";
import { endLeft, leave, stay } from "./leaving";
import { DraftSync, type Kept, type SaveResult, type SyncPorts } from "./sync";

const ONE = schedule();
const TWO = schedule({ weights: { web: curve([0, 2]) } });

/** A server that answers when told to, and a clock that is turned by hand. */
function rig(version = 0) {
  const asked: { version: number; answer: (result: SaveResult) => void; isNull: boolean }[] = [];
  const kept: (Kept | null)[] = [];
  let task: (() => void) | null = null;
  const ports: SyncPorts = {
    save: (draft, over) =>
      new Promise((answer) => asked.push({ version: over, answer, isNull: draft.schedule === null })),
    keep: (draft) => kept.push(draft),
    later: (next) => {
      task = next;
      return () => {
        task = null;
      };
    },
  };
  const sync = new DraftSync(ports, version);
  const tick = () => {
    const due = task;
    task = null;
    due?.();
  };
  const answer = async (result: SaveResult) => {
    asked.at(-1)?.answer(result);
    await Promise.resolve();
    await Promise.resolve();
  };
  return { sync, asked, kept, tick, answer };
}

test("many edits become one write, which the tab keeps until the server has it", async () => {
  const { sync, asked, kept, tick, answer } = rig();
  sync.want(3, ONE);
  sync.want(3, TWO);
  tick();
  expect(asked.length).toBe(1);
  expect(kept.at(-1)?.schedule).toBe(TWO);
  await answer({ is: "saved", version: 1 });
  expect(sync.snapshot()).toEqual({ status: "kept", version: 1, reason: "" });
  expect(kept.at(-1)).toBeNull();
});

test("an edit while one is written is written next, over the version that came of it", async () => {
  const { sync, asked, tick, answer } = rig(4);
  sync.want(3, ONE);
  tick();
  sync.want(3, TWO);
  await answer({ is: "saved", version: 5 });
  expect(sync.snapshot().status).toBe("waiting");
  tick();
  expect(asked.map((each) => each.version)).toEqual([4, 5]);
});

test("a planner that is away is asked again; nothing is lost meanwhile", async () => {
  const { sync, asked, kept, tick, answer } = rig();
  sync.want(3, ONE);
  tick();
  await answer({ is: "passing", reason: "the planner cannot be reached" });
  expect(sync.snapshot().status).toBe("offline");
  expect(kept.at(-1)?.schedule).toBe(ONE);
  tick();
  expect(asked.length).toBe(2);
  await answer({ is: "saved", version: 1 });
  expect(sync.snapshot().status).toBe("kept");
});

test("another tab's draft is not overwritten until a person says so", async () => {
  const { sync, asked, tick, answer } = rig(1);
  sync.want(3, ONE);
  tick();
  await answer({ is: "elsewhere", version: 7 });
  sync.want(3, TWO);
  tick();
  expect(asked.length).toBe(1);
  sync.overwrite();
  tick();
  expect(asked.at(-1)?.version).toBe(7);
});

test("a draft that is the revision again is thrown away on the server", async () => {
  const { sync, asked, tick, answer } = rig(2);
  sync.want(3, null);
  tick();
  expect(asked[0]?.isNull).toBe(true);
  await answer({ is: "saved", version: 0 });
  expect(sync.snapshot().status).toBe("none");
});

test("nothing is written where there is nothing to keep", () => {
  const { sync, asked, tick } = rig();
  sync.want(3, null);
  tick();
  expect(asked).toEqual([]);
});

test("flushing writes at once and waits for the write that is under way", async () => {
  const { sync, asked, tick, answer } = rig();
  sync.want(3, ONE);
  tick();
  sync.want(3, TWO);
  const flushed = sync.flush();
  await answer({ is: "saved", version: 1 });
  await answer({ is: "saved", version: 2 });
  expect((await flushed).version).toBe(2);
  expect(asked.length).toBe(2);
});

test("a publish begins when the draft is written, and nothing is written until it has ended", async () => {
  const { sync, asked, tick, answer } = rig();
  const steps: string[] = [];
  let end = (_: unknown) => {};
  sync.want(3, ONE);
  const published = sync.handOver(async () => {
    steps.push("publish");
    await new Promise((done) => {
      end = done;
    });
    sync.adopt(9, { base: 3, schedule: ONE });
  });
  await Promise.resolve();
  expect([asked.length, steps]).toEqual([1, []]);
  await answer({ is: "saved", version: 1 });
  await answered(() => steps.length > 0);
  sync.want(3, TWO);
  tick();
  expect(asked.length).toBe(1);
  end(null);
  await published;
  sync.want(3, TWO);
  tick();
  expect(asked.map((each) => each.version)).toEqual([0, 9]);
});

test("an edit during a publish that ends without a new draft is written after it", async () => {
  const { sync, asked, tick } = rig(4);
  await sync.handOver(async () => {
    sync.want(3, TWO);
    tick();
  });
  expect(asked).toEqual([]);
  tick();
  expect(asked.map((each) => each.version)).toEqual([4]);
});

test("an editor that was left has written all before another begins, and writes nothing afterwards", async () => {
  const { sync, asked, tick, answer } = rig(1);
  sync.want(3, ONE);
  leave("run", "ada", sync);
  let hasEnded = false;
  const ended = endLeft("run", "ada").then(() => {
    hasEnded = true;
  });
  await Promise.resolve();
  expect([asked.length, hasEnded]).toEqual([1, false]);
  await answer({ is: "passing", reason: "the planner cannot be reached" });
  await answered(() => asked.length === 2);
  await answer({ is: "passing", reason: "the planner cannot be reached" });
  await ended;
  tick();
  expect(asked.length).toBe(2);
});

test("an editor that goes on is not ended", async () => {
  const { sync, asked, tick } = rig(1);
  leave("run", "ada", sync);
  stay("run", "ada", sync);
  await endLeft("run", "ada");
  sync.want(3, ONE);
  tick();
  expect(asked.length).toBe(1);
});

/** Until promises that were settled have had their say. */
async function answered(isSo: () => boolean): Promise<void> {
  for (let turn = 0; turn < 50 && !isSo(); turn++) await Promise.resolve();
  expect(isSo()).toBe(true);
}
