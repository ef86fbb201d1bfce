"""HTTP of the ledger."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import StreamingResponse

from loadmaster_flight.wire.http import API
from loadmaster_flight.wire.ledger import DiffReport, SampleView, StepView

from ..access import Role, needs
from ..store import StreamKey
from .explaining import Choice
from .service import LedgerService

READS = [needs(Role.VIEWER)]
NDJSON = "application/x-ndjson"


def ledger_routes(ledger: LedgerService) -> APIRouter:
    """The routes of the ledger."""
    router = APIRouter(prefix=API, tags=["ledger"])

    @router.get("/runs/{run}/steps/{step}", dependencies=READS)
    def read_step(
        run: str,
        step: int,
        stream: str = "train",
        rank: int | None = None,
        microbatch: int | None = None,
        text: bool = False,
        images: bool = False,
    ) -> StepView:
        """What a step holds, where each piece lies and why it is there; `images` are small, of a rank or microbatch."""
        choice = Choice(rank=rank, microbatch=microbatch, has_text=text, has_images=images)
        return ledger.step(StreamKey(run=run, stream=stream), step, choice)

    @router.get("/runs/{run}/samples", dependencies=READS)
    def read_sample(run: str, sample: str, stream: str = "train", text: bool = False) -> SampleView:
        """Every step that a sample is in, or why it is in none."""
        return ledger.sample(StreamKey(run=run, stream=stream), sample, has_text=text)

    @router.get("/runs/{run}/verify", response_class=StreamingResponse, dependencies=READS)
    def verify(run: str, stream: str = "train", generation: int | None = None) -> StreamingResponse:
        """VerifyReport as lines of JSON: how far it is, and last the whole."""
        lines = ledger.verify(StreamKey(run=run, stream=stream), generation)
        return StreamingResponse(lines, media_type=NDJSON)

    @router.get("/diff", dependencies=READS)
    def read_diff(a: str, b: str, stream: str = "train") -> DiffReport:
        """First step and samples in which two runs, or two generations (`RUN:GENERATION`), part."""
        return ledger.diff(a, b, stream)

    return router
