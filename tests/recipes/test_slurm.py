"""The Slurm recipe, run whole with stand-ins for Slurm's programs: all nodes are this machine.

docs/recipes.md tells what was seen with Slurm itself.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import loadmaster
from support.commands import is_alive
from support.ports import free_port

SCRIPT = Path(__file__).parents[2] / "examples" / "recipes" / "slurm.sh"
STEPS, NUM_RANKS = 4, 2
STAND_INS = {
    # Names of nodes: as they are, commas become lines.
    "scontrol": 'shift 2; tr , "\\n" <<<"$1"',
    # Steps of the job: the id of a step is its srun's.
    "squeue": 'for file in "$STEPS"/*.pid; do echo "$(<"$file") $(basename "$file" .pid)"; done',
    "scancel": 'kill "$2" 2>/dev/null',
    # Runs the tasks of a step here and waits for them; a signal goes on to them.
    "srun": """
declare -A given=()
while [[ $1 == --* ]]; do
    option=${1#--}
    given[${option%%=*}]=${option#*=}
    shift
done
name=${given[job-name]:-trainer}
pids=()
trap 'kill "${pids[@]}" 2>/dev/null; wait; exit 143' TERM
echo $$ >"$STEPS/$name.pid"
for ((task = 0; task < given[ntasks]; task++)); do
    log=${given[output]:-/dev/stdout}
    SLURM_PROCID=$task SLURM_LOCALID=$((task % given[ntasks-per-node])) SLURM_NTASKS=${given[ntasks]} \\
        "$@" >>"${log/\\%t/$task}" 2>&1 &
    pids+=($!)
done
echo "${given[nodelist]} ${given[ntasks]} ${pids[*]}" >"$STEPS/$name"
for pid in "${pids[@]}"; do wait "$pid" || exit $?; done
""",
}


@pytest.fixture
def job(tmp_path: Path) -> dict[str, str]:
    """The environment of a job of two nodes that are both this machine."""
    programs = tmp_path / "bin"
    for folder in (programs, tmp_path / "steps"):
        folder.mkdir()
    for name, text in STAND_INS.items():
        (programs / name).write_text(f"#!/usr/bin/env bash\n{text}\n")
        (programs / name).chmod(0o755)
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("LOADMASTER")},
        "PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "SLURM_JOB_NODELIST": "localhost,127.0.0.1",
        "SLURM_JOB_ID": "1",
        "STEPS": str(tmp_path / "steps"),
        "LOADMASTER_PORT": str(free_port()),
        "LOADERS_PER_NODE": "1",
        "RANKS_PER_NODE": str(NUM_RANKS),
    }


@pytest.fixture
def run_yaml(tmp_path: Path) -> Path:
    rows = [{"ids": [(i + j) % 31 + 1 for j in range(20)]} for i in range(200)]
    (tmp_path / "ids.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    spec = {
        "run": "slurm",
        "vocab_size": 32,
        "sources": {"ids": {"uri": "ids.jsonl", "transform": {"tokens": "ids", "eos": False}}},
        "batch": {"seq_len": 64, "microbatches": 4},
        "mesh": {"dp": NUM_RANKS},
        "until": {"steps": STEPS},
    }
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(spec))
    return tmp_path / "run.yaml"


@pytest.mark.processes
def test_slurm_job_when_run_then_ranks_get_every_step_once_and_nothing_is_left_running(
    job: dict[str, str], run_yaml: Path
) -> None:
    trainer = "loadmaster fetch $PLANNER_URL --json > rank-$RANK-of-$WORLD_SIZE-at-$MASTER_ADDR"
    ended = subprocess.run(
        ["bash", str(SCRIPT), run_yaml.name, trainer],
        cwd=run_yaml.parent, env=job, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    logs = "".join(path.read_text()[-1500:] for path in run_yaml.parent.glob("loadmaster/logs/*"))
    assert ended.returncode == 0, f"{ended.stdout}{ended.stderr}{logs}"
    ranks = [lines_of(run_yaml.parent / f"rank-{rank}-of-{NUM_RANKS}-at-127.0.0.1") for rank in range(NUM_RANKS)]
    assert [[(line["step"], line["digest"]) for line in lines] for lines in ranks] == [
        embedded(run_yaml, rank) for rank in range(NUM_RANKS)
    ]
    steps = {path.name: path.read_text().split() for path in Path(job["STEPS"]).iterdir() if not path.suffix}
    assert {name: (node, int(tasks)) for name, (node, tasks, *_) in steps.items()} == {
        "planner": ("localhost", 1),
        "loader": ("localhost", 1),
        "constructor": ("localhost", 1),
        "trainer": ("127.0.0.1", NUM_RANKS),
    }
    assert not any(is_alive(int(pid)) for _, _, *pids in steps.values() for pid in pids)
    assert (run_yaml.parent / "loadmaster/token").stat().st_mode & 0o077 == 0


def test_slurm_job_when_no_node_is_left_for_the_trainer_then_it_says_so(job: dict[str, str], run_yaml: Path) -> None:
    ended = subprocess.run(
        ["bash", str(SCRIPT), run_yaml.name, "true"],
        cwd=run_yaml.parent, env=job | {"SERVICE_NODES": "2"}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ended.returncode == 2
    assert "none of 2 to train on" in ended.stderr


def embedded(run_yaml: Path, rank: int) -> list[tuple[int, str]]:
    """What a rank must get: step and digest."""
    with loadmaster.connect(str(run_yaml), rank=rank, world_size=NUM_RANKS, framework="numpy") as stream:
        return [(batch.step, batch.digest()) for batch in stream]


def lines_of(path: Path) -> list[dict[str, Any]]:
    """JSON lines."""
    return [json.loads(line) for line in path.read_text().splitlines()]
