"""What the console's screens read. Columns are lists of one length; null: not known, and the screen says why.

Times are seconds, `*_at` seconds since 1970, steps are exclusive bounds, as in StreamView. Every number that moves has
its window beside it: `window_s` is the time that it was really taken over, null where nothing was.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

SourceState = Literal["ok", "failing", "retrying", "exhausted", "retired", "off", "unserved"]


class LiveModel(BaseModel):
    """An answer, or a part of one."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class StreamPlace(LiveModel):
    """Which stream of which run an answer is about, and when it was true."""

    run: str
    stream: str
    generation: int
    """-1: nobody joined yet."""
    at: float
    """When this was read, by the planner's clock."""


class RankLine(LiveModel):
    """A rank in a list of the worst."""

    rank: int
    behind: int
    """Steps behind the rank that is furthest."""
    wait_s: float | None
    """Mean time that it waited for a step in the window."""
    seen_s: float
    state: str


class StageLine(LiveModel):
    """A stage in a list of the most loaded."""

    node: str
    """Its id in GraphView."""
    label: str
    kind: str
    busy: float | None
    blocked: float | None
    queue_fill: float | None
    says: str
    """Why it is here, for people."""


class SourceLine(LiveModel):
    """A source in a list of the unhealthiest."""

    source: str
    state: str
    errors: int
    retries: int
    bad: int
    last_error: str


class CheckpointLine(LiveModel):
    """The newest checkpoint of the planner's state."""

    step: int
    generation: int
    bytes: int
    at: float | None


class StepWaits(LiveModel):
    """How long ranks waited for each of the last steps; null: no rank has said."""

    step: list[int]
    max_s: list[float | None]
    """Of the rank that waited longest: the whole job waited for it."""
    mean_s: list[float | None]
    num_ranks: list[int]
    """Ranks that have said so."""


class Stall(LiveModel):
    """A time in which the stream waited for somebody."""

    from_at: float
    until_at: float | None
    """null: it still waits."""
    step: int
    text: str


class SkewView(LiveModel):
    """How uneven the ranks are in the window: largest over mean, 1 where all are alike; null: not known."""

    cost: float | None
    """Planned cost, by dp rank."""
    tokens: float | None
    """Planned tokens, by dp rank."""
    wait: float | None
    """Time waited for data, by rank."""


class OverviewView(StreamPlace):
    """How a run is, worst first."""

    state: str
    reason: str
    waiting_text: str
    waiting_for: list[int]
    """Ranks that have yet to join."""
    acknowledged: int
    bound: int
    planned: int
    end_step: int | None
    num_ranks: int
    tokens: int | None
    """Tokens of all acknowledged steps of the trained lineage."""
    tokens_per_s: float | None
    step_s: float | None
    """Time from one step to the next, in the window."""
    wait_s: float | None
    """Mean over the steps of the window of the longest wait of any rank."""
    wait_share: float | None
    """Part of the window's time that the job waited for data: `wait_s` over `step_s`, at most 1."""
    window_s: float | None
    fill: float | None
    """Tokens of the window's steps over what they could hold, G * C."""
    occupancy: float | None
    """The same with documents padded to `align`."""
    waits: StepWaits
    skew: SkewView
    slowest_ranks: list[RankLine]
    loaded_stages: list[StageLine]
    unhealthy_sources: list[SourceLine]
    revision: int
    """The newest one."""
    revision_in_force: int
    """That of the next step that ranks read."""
    last_checkpoint: CheckpointLine | None
    stalls: list[Stall]
    """Since the planner started, newest first, at most 32."""
    watched_since: float
    """When the planner started: rates, waits and stalls are not known from before."""


class NodeView(LiveModel):
    """A stage, or a group of them. busy + blocked + idle = 1 where they are known; see docs/live.md."""

    id: str
    kind: Literal["source-group", "loader", "constructor", "rank-group", "planner"]
    label: str
    group: str | None
    """What `expand` must name to have it in parts; null: it is one already, or part of an expanded group."""
    members: int
    queue_fill: float | None
    """Filled part of what it holds ready."""
    busy: float | None
    blocked: float | None
    """It cannot go on because whoever comes after it has enough."""
    idle: float | None
    """It has nothing to do: whoever comes before it has nothing for it."""
    rate: float | None
    """Tokens a second that leave it."""
    errors: int
    state: Literal["ok", "slow", "failing", "silent", "unknown"]
    detail: str


class EdgeView(LiveModel):
    """Tokens on their way; `rate` a second, null where the plan of a large step does not say."""

    from_: str = Field(alias="from")
    to: str
    rate: float | None


class GraphView(StreamPlace):
    """The data plane as a picture. Loads are means over the window."""

    window_s: float | None
    nodes: list[NodeView]
    edges: list[EdgeView]
    expanded: str | None
    groups: list[str]
    """What can be expanded."""


class AxisView(LiveModel):
    """An axis of the mesh, slowest first."""

    name: str
    size: int


class RankColumns(LiveModel):
    """One entry a rank, in order of rank."""

    rank: list[int]
    host: list[str | None]
    """Where the rank runs, as it says itself."""
    constructor: list[str | None]
    """Which constructor serves it."""
    coords: dict[str, list[int]]
    acknowledged: list[int]
    seen_s: list[float | None]
    """Since it was last heard of; null: never by this planner."""
    moved_s: list[float | None]
    """Since it last consumed a step."""
    wait_s: list[float | None]
    """Mean wait for a step in the window."""
    last_wait_s: list[float | None]
    """Wait for the newest step that it has told of."""
    cost: list[float | None]
    """Planned cost of its dp rank in the window over the mean of all: 1 is even."""
    tokens: list[int | None]
    """Planned tokens of its dp rank in a step, mean over the window."""
    state: list[str]
    """ok, behind, silent, left, unheard (no constructor has heard of it), passive (does not fetch: tp broadcast)."""


class MeshView(StreamPlace):
    """Every rank."""

    axes: list[AxisView]
    ranks: RankColumns
    skew: SkewView
    window_s: float | None
    window_steps: int
    """Steps in the window."""


class StepColumns(LiveModel):
    """One entry a step; a step that is not in the log is left out."""

    step: list[int]
    revision: list[int]
    generation: list[int]
    digest: list[str]
    num_tokens: list[int]
    fill: list[float | None]
    cost_max: list[float | None]
    """Largest share of the step's cost on one dp rank."""
    cost_mean: list[float | None]
    skew: list[float | None]
    """cost_max over cost_mean."""


class ShareColumns(LiveModel):
    """One entry a source (the last one is "others", where there are more), each a list over the steps.

    The planned share is the weight in force. Credit makes the served share follow it: `error_tokens` is what the
    source got more than its share so far (less: negative), at most about one piece and its queued tokens; null for
    steps that were planned before this was kept.
    """

    source: list[str]
    planned: list[list[float]]
    served: list[list[float]]
    error_tokens: list[list[float | None]]


class RankCosts(LiveModel):
    """One step by dp rank."""

    step: int
    dp: list[int]
    """First dp rank of each entry: large steps of old logs were kept by groups of ranks."""
    cost: list[float]
    """Over the mean: 1 is even."""
    tokens: list[int]
    is_grouped: bool


class BalanceView(StreamPlace):
    """Planned against served, step by step."""

    first_step: int
    last_step: int
    """Exclusive; at most 400 steps a page."""
    sources: list[str]
    """All of them: what `sources=` may name."""
    steps: StepColumns
    shares: ShareColumns
    ranks: RankCosts | None
    """Of `step=`, where it was asked for."""


class VerdictCounts(LiveModel):
    """Samples that the stream does not train on."""

    bad: int
    skipped: int
    over_long: int
    masked: int


class SourceRow(LiveModel):
    """A source. What loaders say is of their life so far; null: no loader of it has told anything yet."""

    name: str
    state: SourceState
    """failing: its last read failed; retrying: one failed in the last minute; off: weight 0; unserved: no loader."""
    weight: float
    """Share in force."""
    share: float | None
    """Share of the tokens of all acknowledged steps."""
    rows: int | None
    """Rows of an epoch; null until known."""
    epochs: float | None
    """Passes so far; null while an epoch's tokens are not known."""
    tokens: int | None
    """In acknowledged steps."""
    rate: float | None
    """Tokens a second, in the window."""
    reads: int | None
    """Blocks read."""
    read_p50_ms: float | None
    """Of the last 256 blocks of each loader."""
    read_p99_ms: float | None
    errors: int | None
    retries: int | None
    verdicts: VerdictCounts
    last_error: str
    last_error_s: float | None
    """Age of the last error."""
    loader: str
    """Who owns its partitions; several: separated by commas."""


class SourcesView(StreamPlace):
    """A page of sources, by name."""

    rows: list[SourceRow]
    next_after: str | None
    """`after=` of the next page; null: this is the last one."""
    total: int
    """Sources that match."""
    counts: dict[str, int]
    """Sources by state, all of them."""
    window_s: float | None


class CheckpointRow(LiveModel):
    """A state of the planner from which a stream can go on."""

    step: int
    generation: int
    bytes: int
    at: float | None
    """When it was written; null for those from before that was kept."""
    revision: int
    """In force at that step."""
    is_restorable: bool
    reason: str
    """Why it is not."""


class CheckpointsView(StreamPlace):
    """Checkpoints of the planner's state, newest first. A stream can go on from any step from `held_from` on: what
    lies between two checkpoints is planned again."""

    rows: list[CheckpointRow]
    next_before: int | None
    """`before=` of the next page: the number of rows to leave out; null: this is the last one."""
    held_from: int
    total_bytes: int
