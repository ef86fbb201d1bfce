from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import select

from loadmaster_flight.wire.errors import NotFoundError
from loadmaster_server.store import Definition, NewGeneration, SourceCounts, Store, StreamKey
from loadmaster_server.store.models import RevisionRow, SourceRow

MakeDefinition = Callable[..., Definition]


def test_definition_when_read_by_another_store_then_equals_what_was_created(
    store: Store, url: str, make_definition: MakeDefinition
) -> None:
    created = make_definition(sources=("zeta", "alpha", "mid"))
    assert store.runs.create(created)
    with Store(url) as other:
        read = other.runs.definition("run")
    assert read == created
    assert read.spec.source_names == ["zeta", "alpha", "mid"]


def test_create_when_name_is_taken_then_false_and_unchanged(store: Store, make_definition: MakeDefinition) -> None:
    store.runs.create(make_definition())
    assert not store.runs.create(make_definition(sources=("other",)))
    assert store.runs.definition("run").spec.source_names == ["web", "code"]


def test_create_then_revision_zero_and_known_counts_are_written(store: Store, make_definition: MakeDefinition) -> None:
    store.runs.create(make_definition(num_rows=7))
    store.runs.create(make_definition(run="unknown"))
    with store.database.reading() as session:
        revisions = session.scalars(select(RevisionRow).where(RevisionRow.run == "run")).all()
        counts = {row.run: row.num_rows for row in session.scalars(select(SourceRow))}
    assert [(row.revision, row.from_step, row.base) for row in revisions] == [(0, 0, None)]
    assert set(revisions[0].schedule) == {"mixture", "batch"}
    assert counts == {"run": 14, "unknown": None}


def test_definition_when_run_is_unknown_then_not_found(store: Store) -> None:
    with pytest.raises(NotFoundError, match="no run 'nope'"):
        store.runs.definition("nope")


def test_retire_idle_when_a_run_is_open_then_only_the_others_are_retired(
    store: Store, make_definition: MakeDefinition, make_new: Callable[..., NewGeneration]
) -> None:
    for run in ("idle", "busy"):
        store.runs.create(make_definition(run=run))
    store.generations.open(StreamKey(run="busy", stream="train"), make_new())
    store.runs.retire_idle()
    assert store.runs.active_names() == ["busy"]
    store.runs.activate("idle")
    assert store.runs.active_names() == store.runs.names() == ["busy", "idle"]


def test_counts_when_an_epoch_is_learned_then_kept_beside_what_footers_told(
    store: Store, make_definition: MakeDefinition
) -> None:
    store.runs.create(make_definition(num_rows=7))
    store.runs.learn("run", {1: (14, 12, 3400)})
    assert store.runs.counts("run") == [
        SourceCounts(num_rows=14),
        SourceCounts(num_rows=14, epoch_rows=14, epoch_samples=12, epoch_tokens=3400),
    ]


def test_source_when_added_then_behind_the_others_and_the_created_run_is_still_told(
    store: Store, make_definition: MakeDefinition
) -> None:
    created, grown = make_definition(), make_definition(sources=("web", "code", "law"))
    store.runs.create(created)
    tree, manifest = grown.spec.to_tree()["sources"]["law"], grown.manifests[2]
    assert store.runs.add_source("run", "law", tree, manifest, by="ada")
    found = store.runs.definition("run")
    assert (found.spec.source_names, found.num_created, found.lanes) == (["web", "code", "law"], 2, [2, 2, 2])
    assert found.spec.sources["law"] == grown.spec.sources["law"]
    assert found.first(2) == created
    assert len(store.runs.counts("run")) == 3
    assert not store.runs.add_source("run", "law", tree, manifest, by="ada"), "another source has its ordinal"
    assert [(row.author, row.action, row.message) for row in store.audit.read()] == [("ada", "source_added", "law")]
