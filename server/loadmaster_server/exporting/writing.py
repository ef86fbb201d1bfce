"""From built steps to files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from loadmaster.batch import Batch, Microbatch, to_batch
from loadmaster.tensors import Framework
from loadmaster_flight.spec import Layout, RunSpec
from loadmaster_flight.wire.errors import BadRequestError

from .folder import new_folder
from .mds import MdsWriter
from .megatron import IndexedWriter
from .steps import BuiltStep, StepSource

NOTES = "export.json"


class ExportFormat(StrEnum):
    """mds: MosaicML Streaming, a sample is a microbatch. megatron: Megatron-LM, a sequence is a document."""

    MDS = "mds"
    MEGATRON = "megatron"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRange:
    """Steps [first, last)."""

    first: int
    last: int

    @staticmethod
    def parse(text: str) -> StepRange:
        """`a:b`, or `:b` from step 0.

        Raises:
            ValueError: It is none.
        """
        first, colon, last = text.partition(":")
        if not colon or not (first or "0").isdecimal() or not last.isdecimal() or int(first or 0) >= int(last):
            raise ValueError(f"must be a:b with whole numbers a < b, got {text!r}")
        return StepRange(first=int(first or 0), last=int(last))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport:
    """What was written. Steps are an exclusive range; `bound` is the first step that could still have changed, if any.

    Attributes:
        digests: Step -> digest of its plan, as `loadmaster explain` shows it.
        files: What the writer of the format says of its files.
    """

    run: str
    stream: str
    format: str
    steps: list[int]
    num_microbatches: int
    num_documents: int
    num_tokens: int
    bound: int | None
    digests: dict[int, str]
    files: dict[str, Any]

    def to_tree(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)


class Writer(Protocol):
    """Takes microbatches in order."""

    def add(self, batch: Batch, microbatch: Microbatch, number: int) -> None:
        """Append a microbatch; `number` is its place in the step."""

    def close(self) -> dict[str, Any]:
        """Finish; returns what is to be noted."""


def export_steps(
    source: StepSource,
    wanted: StepRange,
    out: Path,
    kind: ExportFormat,
    *,
    on_step: Callable[[int], None] = lambda _: None,
) -> ExportReport:
    """Write steps of a stream into the new folder `out`, in the order of steps and microbatches.

    Beside the files of the format it holds export.json, which is the report.

    Args:
        source: Gives the steps.
        wanted: Which; the stream may end before the last of them.
        out: Must not exist, or be empty. It is there as a whole or not at all.
        kind: Format of the files.
        on_step: Called after each step with its number.

    Raises:
        BadRequestError: `out` holds something, or the stream has none of these steps.
        LoadmasterError: The source cannot give a step.
    """
    with new_folder(out) as folder:
        with _writer(kind, folder, source.spec) as writer:
            counter = _Counter(source.spec, writer)
            for built in source.steps(wanted.first, wanted.last):
                counter.take(built)
                on_step(built.plan.step)
            report = counter.report(source, kind, wanted)
        (folder / NOTES).write_text(json.dumps(report.to_tree(), indent=1) + "\n")
    return report


@contextmanager
def _writer(kind: ExportFormat, folder: Path, spec: RunSpec) -> Iterator[Writer]:
    if kind is ExportFormat.MDS:
        yield MdsWriter(folder)
    else:
        with closing(IndexedWriter(folder, vocab_size=spec.vocab_size)) as writer:
            yield writer


class _Counter:
    """Hands microbatches to a writer and counts them."""

    def __init__(self, spec: RunSpec, writer: Writer) -> None:
        self._spec, self._writer = spec, writer
        self._num_rows = spec.batch.rows if spec.batch.layout is Layout.PAD else 1
        self._digests: dict[int, str] = {}
        self._num_microbatches = self._num_documents = self._num_tokens = 0

    def take(self, built: BuiltStep) -> None:
        plan, number = built.plan, 0
        for record in built.records:
            batch = to_batch(
                record,
                step=plan.step,
                source_names=self._spec.source_names,
                num_rows=self._num_rows,
                framework=Framework.NUMPY,
            )
            for microbatch in batch.microbatches():
                self._writer.add(batch, microbatch, number)
                number += 1
                self._num_documents += len(microbatch.documents)
            self._num_tokens += batch.num_tokens
        self._num_microbatches += number
        self._digests[plan.step] = plan.digest

    def report(self, source: StepSource, kind: ExportFormat, wanted: StepRange) -> ExportReport:
        files = self._writer.close()
        if not self._digests:
            raise BadRequestError(
                f"steps must be some that {self._spec.run}/{source.stream} has, it ends before step {wanted.first}"
            )
        last = max(self._digests) + 1
        return ExportReport(
            run=self._spec.run,
            stream=source.stream,
            format=kind.value,
            steps=[min(self._digests), last],
            num_microbatches=self._num_microbatches,
            num_documents=self._num_documents,
            num_tokens=self._num_tokens,
            bound=None if source.bound is None or source.bound >= last else source.bound,
            digests=self._digests,
            files=files,
        )
