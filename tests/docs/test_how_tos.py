"""What the how-tos show is run as it stands there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import loadmaster
from loadmaster_server.access import AccessMode
from loadmaster_server.cli.opening import open_run
from loadmaster_server.launch import ClusterSize, LocalCluster

from .how_to import HOW_TO, PLANNER, blocks_of, run_page

PAGES = sorted(path.name for path in HOW_TO.glob("*.md"))
WITH_PLANNER = [name for name in PAGES if PLANNER in "".join(b.text for b in blocks_of(HOW_TO / name) if not b.reason)]


@pytest.mark.parametrize("name", [name for name in PAGES if name not in WITH_PLANNER])
def test_page_when_its_blocks_are_run_then_they_work(name: str, workplace: Path) -> None:
    run_page(HOW_TO / name)


@pytest.mark.processes
def test_pages_when_they_speak_to_a_planner_then_their_blocks_work(workplace: Path, data: Path) -> None:
    """One cluster for all of them, with the runs that the pages create."""
    with LocalCluster(state_dir=workplace / "state", size=ClusterSize(workers=1), access=AccessMode.OFF) as cluster:
        for name in WITH_PLANNER:
            folder = workplace / name.removesuffix(".md")
            folder.mkdir()
            (folder / "data").symlink_to(data, target_is_directory=True)
            with pytest.MonkeyPatch.context() as patch:
                patch.chdir(folder)
                for block in blocks_of(HOW_TO / name):
                    if block.title == "run.yaml":
                        Path("run.yaml").write_text(block.text)
                        opened: Any = open_run(Path("run.yaml"))
                        cluster.create_run(*opened)
                if name == "export.md":
                    _train(cluster.url, opened[0].run)
                run_page(HOW_TO / name, planner=cluster.url)


def _train(url: str, run: str) -> None:
    """A planner plans once a rank has joined."""
    with loadmaster.connect(url, run=run, framework="numpy", rank=0, world_size=1) as stream:
        next(stream)
        next(stream)


def test_blocks_when_not_run_then_a_reason_is_given() -> None:
    blocks = [block for name in PAGES for block in blocks_of(HOW_TO / name)]
    assert len(blocks) > 40
    left_alone = [block for block in blocks if block.reason]
    assert all(len(block.reason) > 10 for block in left_alone)
    assert len(left_alone) < len(blocks) / 4
