"""A run: one training job's data plan."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from .batch import BatchSpec, Layout
from .media import MediaSpec
from .mesh import MeshSpec
from .model import SpecModel, near, refuse
from .network import ModelSpec
from .schedule import Ramp
from .source import SourceSpec

TRAIN = "train"
NAME = r"^[a-z0-9][a-z0-9_.-]{0,62}$"
Name = Annotated[str, Field(pattern=NAME)]


class MixtureSpec(SpecModel):
    """Shares of the sources over steps; normalised where they are evaluated."""

    unit: Literal["tokens", "samples"] = "tokens"
    """What the shares count: tokens or samples."""
    weights: dict[Name, Ramp]
    """Per source a number, or knots over steps."""


class UntilSpec(SpecModel):
    """When the train stream ends: after whichever of these comes first. Nothing given: it never ends by itself."""

    steps: Annotated[int | None, Field(ge=1)] = None
    """Number of steps."""
    tokens: Annotated[int | None, Field(ge=1)] = None
    """Real tokens, without padding; the step that reaches it is the last."""
    epochs: Annotated[int | None, Field(ge=1)] = None
    """Passes over every source; a source that ends sooner leaves its share to the others."""


class EvaluationSpec(SpecModel):
    """A finite pass over some sources: each sample exactly once, never moving the train stream."""

    sources: Annotated[tuple[Name, ...], Field(min_length=1)]
    """Names of the sources that are read, each sample once."""
    microbatches: Annotated[int | None, Field(ge=1)] = None
    """G of the pass; by default the run's at step 0."""


class BudgetSpec(SpecModel):
    """Bytes and horizons."""

    shuffle_bytes: Annotated[int, Field(ge=1 << 16)] = 256 << 20
    """Memory for resident blocks of all sources together; buys lanes, and with them shuffle quality."""
    window_bytes: Annotated[int, Field(ge=1 << 16)] = 512 << 20
    """Measured samples that one loader keeps until they are delivered."""
    shadow_bytes: Annotated[int, Field(ge=1 << 16)] = 64 << 20
    """Measured samples of the next steps that one loader keeps for partitions that it shadows, besides its window."""
    build_bytes: Annotated[int, Field(ge=1 << 16)] = 512 << 20
    """Assembled steps that one constructor keeps."""
    cache_bytes: Annotated[int, Field(ge=0)] = 1 << 30
    """Local cache of blocks of unseekable (.gz, .zst) files."""
    plan_ahead: Annotated[int, Field(ge=1)] = 64
    """Steps planned beyond what all ranks have acknowledged."""
    bind_ahead: Annotated[int, Field(ge=1)] = 24
    """Steps that are bound (an edit can no longer change them) beyond that."""
    build_ahead: Annotated[int, Field(ge=1)] = 3
    """Steps assembled beyond that."""


class RunSpec(SpecModel):
    """One training job's data plan."""

    run: Name
    """Name of the run: lower-case letters, digits, `.`, `_` and `-`."""
    seed: Annotated[int, Field(ge=0, lt=1 << 63)] = 0
    """Decides every order."""
    tokenizer: str | None = None
    """A Hugging Face tokenizers file (tokenizer.json), for every source that names none."""
    vocab_size: Annotated[int | None, Field(ge=1)] = None
    """Token ids must be below this; by default the tokenizer's own size."""
    sources: Annotated[dict[Name, SourceSpec], Field(min_length=1)]
    """Name -> source. Their order is frozen with the run."""
    mixture: MixtureSpec
    """By default equal shares of all sources that no evaluation names."""
    batch: BatchSpec
    """What a step looks like."""
    mesh: MeshSpec = MeshSpec()
    """The device mesh, and what each axis gets."""
    strategy: Annotated[str, Field(min_length=1)] = "llm_balance"
    """How a step's pieces are placed on the ranks: a built-in strategy, or `package.module:function`."""
    media: MediaSpec = MediaSpec()
    """What becomes of images, video and audio."""
    model: ModelSpec = ModelSpec()
    """Sizes of the networks, which say what a document costs."""
    until: UntilSpec = UntilSpec()
    """When the train stream ends."""
    evaluation: dict[Name, EvaluationSpec] = Field(default_factory=dict)
    """Name -> finite pass over some sources, a stream of its own."""
    budgets: BudgetSpec = BudgetSpec()
    """Bytes that each role keeps, and how far ahead it works."""

    @model_validator(mode="before")
    @classmethod
    def _default_weights(cls, tree: object) -> object:
        """Without weights, equal ones of all sources but those that an evaluation names (of all, if it names all)."""
        if not isinstance(tree, dict) or not isinstance(tree.get("sources"), dict):
            return tree
        mixture = tree.get("mixture") or {}
        if not isinstance(mixture, dict) or "weights" in mixture:
            return tree
        held_out = _evaluated(tree.get("evaluation"))
        names = [name for name in tree["sources"] if name not in held_out] or list(tree["sources"])
        return tree | {"mixture": mixture | {"weights": dict.fromkeys(names, 1.0)}}

    @model_validator(mode="after")
    def _names_agree(self) -> RunSpec:
        refuse(itertools.chain(self._weight_faults(), self._evaluation_faults(), self._media_faults()))
        return self

    def _weight_faults(self) -> Iterator[str]:
        ramps = self.mixture.weights
        for name in ramps:
            if name not in self.sources:
                yield f"mixture.weights.{name} names no source; {near(name, self.sources)}"
        for step in sorted({knot.at for ramp in ramps.values() for knot in ramp.knots} | {0}):
            if not any(ramp.at(step) > 0 for ramp in ramps.values()):
                yield f"mixture.weights must have a positive weight at every step, all are 0 at step {step}"
                return

    def _evaluation_faults(self) -> Iterator[str]:
        for name, evaluation in self.evaluation.items():
            if name == TRAIN:
                yield f"evaluation.{name} must have another name: that is the training stream's"
            for source in evaluation.sources:
                if source not in self.sources:
                    yield f"evaluation.{name}.sources names no source {source!r}; {near(source, self.sources)}"

    def _media_faults(self) -> Iterator[str]:
        for name, source in self.sources.items():
            columns = source.transform
            for kind, given in (("image", columns.image), ("video", columns.video), ("audio", columns.audio)):
                section = "audio" if kind == "audio" else "vision"
                if given and getattr(self.media, section) is None:
                    yield f"media.{section} must say what becomes of sources.{name}.transform.{kind}, got none"
            if columns.has_media and self.batch.layout is Layout.CONCAT:
                yield f"batch.layout must be pack or pad where a source ({name}) has media, got concat, which cuts them"

    @property
    def source_names(self) -> list[str]:
        """Names in ordinal order: the order of the spec, frozen when the run is created."""
        return list(self.sources)

    @property
    def stream_names(self) -> list[str]:
        return [TRAIN, *self.evaluation]

    def to_tree(self) -> dict[str, Any]:
        """The spec as plain JSON values; `RunSpec.model_validate` reads it back."""
        return self.model_dump(mode="json", exclude_defaults=True)


def _evaluated(evaluation: object) -> set[str]:
    """Names of the sources that evaluations name, of a tree that is not checked yet."""
    passes = evaluation.values() if isinstance(evaluation, dict) else ()
    named = [p.get("sources") for p in passes if isinstance(p, dict)]
    return {name for names in named if isinstance(names, (list, tuple)) for name in names if isinstance(name, str)}
