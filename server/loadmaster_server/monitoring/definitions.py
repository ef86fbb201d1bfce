"""The metrics of a planner: docs/reference/metrics.md is made from these."""

from __future__ import annotations

from loadmaster_flight.telemetry.metrics import counter, gauge, histogram

S = ("run", "stream")
PLANNED = gauge("loadmaster_stream_steps_planned", "Steps before this one are planned.", *S)
BOUND = gauge("loadmaster_stream_steps_bound", "Steps before this one are bound: no edit changes them any more.", *S)
ACKNOWLEDGED = gauge("loadmaster_stream_steps_acknowledged", "All ranks have consumed the steps before this one.", *S)
END_STEP = gauge("loadmaster_stream_end_step", "Number of steps of the stream, once that is planned.", *S)
GENERATION = gauge("loadmaster_stream_generation", "Number of the newest generation.", *S)
REVISION = gauge("loadmaster_stream_revision", "Revision in force at the next step to acknowledge.", *S)
RUN_REVISION = gauge("loadmaster_run_revision", "Number of the newest revision.", "run")
STATE = gauge("loadmaster_stream_state", "1 for the state that the stream is in, 0 for the others.", *S, "state")
RANKS = gauge("loadmaster_stream_ranks", "Ranks that joined.", *S)
TOKENS = gauge("loadmaster_stream_tokens", "Tokens of all acknowledged steps of the trained lineage.", *S)
FILL = gauge("loadmaster_stream_fill_ratio", "Tokens of the newest acknowledged step over what it could hold.", *S)
SKEW = gauge(
    "loadmaster_stream_skew_ratio", "Planned cost of the dearest dp rank over the mean, newest acknowledged step.", *S
)
QUEUE = gauge("loadmaster_stream_queue_tokens", "Tokens that are drawn and wait for a later step.", *S)
PLANNING = histogram(
    "loadmaster_stream_planning_seconds",
    "Time to plan a step and write it down, waiting for metadata not counted. Replayed steps are not counted.",
    *S,
)
LOOP_SECONDS = counter(
    "loadmaster_plan_loop_seconds", "Seconds of the plan loop by what it did; see docs/live.md.", *S, "state"
)

SOURCE_TOKENS = gauge("loadmaster_source_tokens", "Tokens of one source in all acknowledged steps.", *S, "source")
SOURCE_WEIGHT = gauge("loadmaster_source_weight_ratio", "Share in force at the newest acknowledged step.", *S, "source")
LEFT_OUT = counter(
    "loadmaster_source_left_out_samples",
    "Samples in the journal that are not trained on, or without loss (masked).",
    *(*S, "source", "verdict"),
)

WAIT = gauge("loadmaster_stream_wait_seconds", "The newest waits that ranks told of: longest and mean.", *S, "of")
AWAITED = gauge("loadmaster_stream_ranks_awaited", "Ranks that others wait for, at most 64 are counted.", *S, "state")
AWAITED_RANK = gauge("loadmaster_stream_awaited_rank", "The rank that is most behind; -1: nobody is waited for.", *S)
R = (*S, "rank")
RANK_ACKNOWLEDGED = gauge("loadmaster_rank_steps_acknowledged", "The rank has consumed the steps before this one.", *R)
RANK_SEEN = gauge("loadmaster_rank_seen_seconds", "Since the rank was last heard of.", *R)
RANK_WAIT = gauge("loadmaster_rank_wait_seconds", "How long the rank waited for the newest step it told of.", *R)

CHECKPOINT_SIZE = gauge("loadmaster_checkpoint_size_bytes", "Size of the newest base checkpoint.", *S)
CHECKPOINT_STEP = gauge("loadmaster_checkpoint_step", "Step of the newest base checkpoint.", *S)
CHECKPOINT_TIME = gauge("loadmaster_checkpoint_timestamp_seconds", "When it was written, seconds since 1970.", *S)
ENCODING = histogram(
    "loadmaster_checkpoint_encode_seconds",
    "Time to make bytes of the planner's state; its count is that of checkpoints.",
)
COUNTED = {
    "checkpoint_bytes_written": counter("loadmaster_checkpoint_written_bytes", "Bytes of checkpoints written."),
    "checkpoints_dropped": counter("loadmaster_checkpoints_dropped", "Old checkpoints dropped."),
    "restores": counter("loadmaster_restores", "Times that a plan loop went on from a checkpoint."),
    "restored_steps": counter("loadmaster_restored_steps", "Steps that were planned again for it."),
    "last_restore_seconds": gauge("loadmaster_restore_last_seconds", "How long the last one took."),
    "plans_moved": counter("loadmaster_plan_log_moved_steps", "Steps whose bodies were moved to segment files."),
    "segment_bytes_written": counter("loadmaster_plan_log_segment_written_bytes", "Bytes of segment files written."),
    "segment_seconds": counter("loadmaster_plan_log_segment_seconds", "Seconds that moving took."),
    "segments_dropped": counter("loadmaster_plan_log_segments_dropped", "Segment files deleted."),
    "retention_failures": counter("loadmaster_retention_failures", "Tries to tidy the plan log that failed."),
}
"""By the name that the planner's own threads count under."""
LOG_BYTES = gauge("loadmaster_plan_log_bytes", "Size of the plan log, in SQL and in segment files.", "part")
LOG_ENTRIES = gauge("loadmaster_plan_log_entries", "How many there are.", "part")

ACTORS = gauge("loadmaster_actors", "Loaders and constructors that have not been given up.", "role", "state")
HEARTBEAT_AGE = gauge(
    "loadmaster_actor_heartbeat_age_seconds", "Since the one was heard of that is silent longest.", "role"
)
LEASES = gauge("loadmaster_leases", "Leases of partitions of sources, and of dp ranks.", "kind", "holder")
REFUSALS = counter("loadmaster_planner_refusals", "Requests that nobody may send, or not this caller.", "code")
EVENTS = {
    "event_streams": gauge("loadmaster_event_streams", "Browsers and others that listen to events."),
    "events_sent": counter("loadmaster_events_sent", "Events sent to them."),
    "events_dropped": counter("loadmaster_events_dropped", "Events that were dropped because somebody is slow."),
    "live_failures": counter("loadmaster_live_failures", "Looks at what changed that failed."),
}
METRICS = (
    *(PLANNED, BOUND, ACKNOWLEDGED, END_STEP, GENERATION, REVISION, RUN_REVISION, STATE, RANKS, TOKENS, FILL, SKEW),
    *(QUEUE, PLANNING, LOOP_SECONDS, SOURCE_TOKENS, SOURCE_WEIGHT, LEFT_OUT, WAIT, AWAITED, AWAITED_RANK),
    *(RANK_ACKNOWLEDGED, RANK_SEEN, RANK_WAIT, CHECKPOINT_SIZE, CHECKPOINT_STEP, CHECKPOINT_TIME, ENCODING),
    *(*COUNTED.values(), LOG_BYTES, LOG_ENTRIES, ACTORS, HEARTBEAT_AGE, LEASES, REFUSALS, *EVENTS.values()),
)
"""All of a planner's, in the order of the reference."""
