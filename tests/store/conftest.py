"""A store in a temporary file, and small records to put into it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from loadmaster_flight.spec import RunSpec, SourceManifest
from loadmaster_server.store import Definition, NewGeneration, PlanRecord, Store

MakeDefinition = Callable[..., Definition]


@pytest.fixture
def url(database_url: str) -> str:
    """URL of a database without rows, on SQLite and on PostgreSQL."""
    return database_url


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """An open, empty store."""
    with Store(url) as opened:
        yield opened


@pytest.fixture
def make_definition() -> MakeDefinition:
    """Definitions of runs over sources without shards."""

    def make(run: str = "run", sources: tuple[str, ...] = ("web", "code"), num_rows: int | None = None) -> Definition:
        spec = RunSpec.model_validate(
            {
                "run": run,
                "sources": {name: {"uri": f"{name}.jsonl", "transform": {"text": "text"}} for name in sources},
                "mixture": {"weights": dict.fromkeys(sources, 1)},
                "batch": {"seq_len": 64, "microbatches": 4},
            }
        )
        shard = {"uri": "a.jsonl", "size_bytes": 10, "etag": "e", "num_rows": num_rows}
        manifests = [
            SourceManifest.model_validate(
                {
                    "name": name,
                    "ordinal": i,
                    "format": "jsonl",
                    "lanes": 2,
                    "unit_kind": "shard",
                    "block_bytes": 4096,
                    "shards": [shard, shard],
                    "fingerprint": "f",
                }
            )
            for i, name in enumerate(sources)
        ]
        return Definition(spec=spec, manifests=tuple(manifests))

    return make


@pytest.fixture
def make_new() -> Callable[..., NewGeneration]:
    """What two ranks of a rendezvous agreed on."""

    def make(parent: int = -1, first_step: int = 0, nonces: tuple[str, ...] = ("a", "b")) -> NewGeneration:
        mesh = {"pp": 1, "dp": len(nonces), "cp": 1, "tp": 1}
        return NewGeneration(parent=parent, first_step=first_step, mesh=mesh, nonces=list(nonces))

    return make


@pytest.fixture
def make_plan() -> Callable[..., PlanRecord]:
    """Records of the plan log with a given step."""

    def make(step: int, *, is_final: bool = False) -> PlanRecord:
        summary = {"total_tokens": [10 * (step + 1), 0]}
        return PlanRecord(step=step, digest=f"{step:064}", revision=0, is_final=is_final, body=b"body", summary=summary)

    return make
