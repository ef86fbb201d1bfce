"""`loadmaster explain`, `verify` and `diff` against a whole cluster of real processes."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import loadmaster
from loadmaster.cli.commands import main
from loadmaster_flight.spec import load_run_spec
from loadmaster_server.freezing import freeze_run
from loadmaster_server.launch import ClusterSize, LocalCluster

Capture = pytest.CaptureFixture[str]
pytestmark = pytest.mark.processes


@pytest.fixture
def cluster(spec_file: Callable[..., Path], tmp_path: Path) -> Iterator[LocalCluster]:
    """A planner, a loader and a constructor with a run `test` over real files."""
    spec = load_run_spec(spec_file())
    cluster = LocalCluster(state_dir=tmp_path / "state", size=ClusterSize())
    try:
        cluster.start()
        cluster.create_run(spec, freeze_run(spec))
        yield cluster
    finally:
        cluster.stop()


def _fetch(cluster: LocalCluster, num_steps: int) -> list[list[str]]:
    """Samples of the first steps, read as a training loop does."""
    with loadmaster.connect(cluster.url, run="test", framework="numpy", timeout_s=60) as stream:
        return [batch.sample_ids for batch in itertools.islice(stream, num_steps)]


def _json(capsys: Capture) -> Any:
    return json.loads(capsys.readouterr().out)


def test_ledger_commands_when_a_run_was_read_then_they_tell_what_the_ranks_got(
    cluster: LocalCluster, capsys: Capture
) -> None:
    samples = _fetch(cluster, 6)
    url = cluster.url

    assert main(["explain", url, "test", "--step", "3", "--rank", "0", "--text", "--json"]) == 0
    step = _json(capsys)
    assert [piece["sample"] for piece in step["pieces"]] == samples[3]
    assert all(piece["text"] and piece["sample_tokens"] > 0 for piece in step["pieces"])
    of_web = [piece for piece in step["pieces"] if piece["source"] == "web"]
    assert all(piece["text"].startswith(f"{10 * piece['block'] + piece['row']}:") for piece in of_web)

    assert main(["explain", url, "--sample", samples[2][0], "--text"]) == 0
    told = capsys.readouterr().out
    assert samples[2][0] in told
    assert "drawn at" in told
    assert "under revision 0" in told
    assert "      | " in told

    assert main(["verify", url, "test"]) == 0
    assert "WHOLE: every piece of the" in capsys.readouterr().out
    assert main(["verify", url, "test", "--json"]) == 0
    report = _json(capsys)
    assert (report["num_faults"], report["is_done"]) == (0, True)
    assert report["acknowledged"] >= 5

    assert main(["diff", url, "test", "test:0"]) == 0
    assert "are equal in the" in capsys.readouterr().out


def test_ledger_commands_when_what_they_ask_for_is_not_there_then_one_line(
    cluster: LocalCluster, capsys: Capture
) -> None:
    assert main(["verify", cluster.url, "none"]) == 2
    assert "loadmaster: " in capsys.readouterr().err
    assert main(["explain", cluster.url, "--step", "3"]) == 2
    assert "nobody has joined test/train yet" in capsys.readouterr().err
