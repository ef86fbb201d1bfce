"""Messages of the ledger: what a step holds and why, whether a stream is whole, where two runs part."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureView:
    """A small picture of an image, at most 160 pixels on its longer side. `src`: a data URI."""

    src: str
    width: int
    height: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceView:
    """One piece of a step.

    Attributes:
        sample: `source/shard/block/row@epoch`, and `:first_token` after it in cut samples, as batches name it; where no
            loader could say which row it is, `pos N` stands for the row.
        dp, microbatch, slot: Its dp rank, the microbatch of that rank, and its place among the documents there.
        uri: Of its shard.
        pos: Its position in the order of its block.
        row: Row in the block; -1 where no loader could say.
        first_token, num_tokens: Its part of the sample; num_tokens is -1 for a whole one whose length is not known.
        sample_tokens: Length of the sample; -1 where it is not known.
        drawn_at: The step that drew it; -1 for steps that were planned before this was kept.
        waited: Steps that it was deferred for.
        credit_before, credit_after: Tokens owed to its source before and after the draw of the step that drew it.
        verdict: `ok`, or `masked`: it is served without loss.
        reason: Why it is masked.
        encoders: Ranks that encode its images, one an image; empty where images go with their document.
        text: Decoded, where it was asked for.
        images: Small pictures of the first ones, where they were asked for: at most 24 in an answer.
        more_images: Images of the sample that are not shown.
    """

    sample: str
    source: str
    epoch: int
    lane: int
    shard: int
    block: int
    pos: int
    row: int
    uri: str
    dp: int
    microbatch: int
    slot: int
    first_token: int
    num_tokens: int
    sample_tokens: int
    drawn_at: int
    waited: int
    credit_before: int | None
    credit_after: int | None
    verdict: str
    reason: str
    encoders: list[int] = field(default_factory=list)
    text: str | None = None
    images: list[PictureView] = field(default_factory=list)
    more_images: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareView:
    """A source in a step: its share in force, its tokens there, and how it stands since step 0.

    Attributes:
        placed_tokens: Since step 0 of the lineage.
        target_tokens: What the share in force would give it of all sources' placed tokens.
        credit: Tokens owed to it after the step's draw; None for steps that were planned before this was kept.
    """

    source: str
    weight: float
    step_tokens: int
    placed_tokens: int
    target_tokens: int
    credit: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepView:
    """A step as it was planned, in the trained lineage of its stream.

    Attributes:
        generation: Whose log has it.
        lineage: `generation 2 from step 30 of generation 1`, newest first.
        state: delivered, planned, or left out (on purpose, by a resume with skip).
        notes: What could not be told, and why.
    """

    run: str
    stream: str
    step: int
    generation: int
    lineage: list[str]
    state: str
    revision: int
    digest: str
    mesh: dict[str, int]
    num_bins: int
    seq_len: int
    num_tokens: int
    num_pieces: int
    global_valid_tokens: int
    shares: list[ShareView] = field(default_factory=list)
    pieces: list[PieceView] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleView:
    """Every step that a sample is in, or why it is in none.

    Attributes:
        steps: With its pieces alone.
        verdict: Why it is left out, where the journal says so; else empty.
        searched: Exclusive bound of the steps that were looked at.
    """

    run: str
    stream: str
    sample: str
    steps: list[StepView]
    verdict: str
    searched: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that a plan log should not hold.

    Attributes:
        kind: lost, repeated, disorder, log (a step that is missing or not what its digest says).
        step: Where it shows; -1 where no step can be named.
        sample: As in `PieceView`; empty where the fault is not of one sample.
    """

    kind: str
    step: int
    sample: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """What came of going through a stream's plan log.

    Attributes:
        is_done: False while it is under way: then the counts so far.
        acknowledged: Exclusive bound of the steps that every rank acknowledged.
        read_to: Exclusive bound of the steps that were read.
        closed_at: Last checkpoint that the accounts were closed at: all that was drawn before this step is in a step or
            waits in the queue. Behind it, repeats and disorder show, and losses do not yet.
        lineage: As in `StepView`.
        left_out_steps: Steps that a resume left out on purpose.
        pieces, samples: In delivered steps; a sample that was cut counts once, with its first piece.
        cut_samples: Of these, samples that were cut.
        planned_pieces: In steps that are planned and not acknowledged.
        queued: Pieces that waited at `closed_at`.
        skipped: Rows that the journal leaves out.
        bodies_gone: Steps of which only the pieces are held any more: their digest cannot be compared.
        num_faults: All of them; `faults` has the first ones.
    """

    run: str
    stream: str
    generation: int
    is_done: bool
    acknowledged: int
    read_to: int
    closed_at: int
    lineage: list[str]
    left_out_steps: int = 0
    pieces: int = 0
    samples: int = 0
    cut_samples: int = 0
    planned_pieces: int = 0
    queued: int = 0
    skipped: int = 0
    bodies_gone: int = 0
    num_faults: int = 0
    faults: list[Fault] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffReport:
    """Where two plan logs part.

    Attributes:
        a, b: `run/stream`, or `run/stream generation 3`.
        common: Exclusive bound of the steps that were compared: the shorter of the two.
        first_step: First step that differs; -1: none does.
        kind: What differs there: nothing, placement, revision, mixture, membership, verdict, batch (G or C).
        reasons: Sentences on what may have caused it: seed, spec, sources, revisions, verdicts.
        only_a, only_b: Samples of that step that the other has not, the first ones; `num_only_*` counts all.
        moved: Samples that lie in another bin, the first ones; `num_moved` counts all.
    """

    a: str
    b: str
    common: int
    first_step: int
    kind: str
    reasons: list[str]
    only_a: list[str] = field(default_factory=list)
    only_b: list[str] = field(default_factory=list)
    num_only_a: int = 0
    num_only_b: int = 0
    moved: list[str] = field(default_factory=list)
    num_moved: int = 0
