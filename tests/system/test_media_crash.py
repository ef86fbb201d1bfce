"""A decoder that crashes in a run within the training process: the next try goes on without the sample."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from support.crashing import crashing_program
from support.media_runs import ExampleFiles, media_run

pytestmark = pytest.mark.processes
END_S = 120.0
TRAINING = """
import json
import loadmaster
from support.media_runs import read_documents
with loadmaster.connect({path!r}, framework="numpy") as stream:
    records = [batch.record for batch in stream]
documents = [document for record in records for document in read_documents(record, ["prose", "pictures", "clips"])]
without_loss = [document.key[1:] for document in documents if (document.labels == -100).all()]
print(json.dumps([len(records), without_loss, [document.key[1:] for document in documents]]))
"""
STEPS, ROW = 20, (0, 0, 5)


def test_training_when_a_picture_crashes_its_decoder_dies_once_and_then_masks(tmp_path: Path) -> None:
    spec = media_run(
        mixture={"weights": {"prose": 0.0, "pictures": 1.0, "clips": 0.0}},
        batch={"seq_len": 256, "microbatches": 4},
        until={"steps": STEPS},
    )
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
    fatal = ExampleFiles().data(("pictures", *ROW))
    program = crashing_program("decode_image", fatal, TRAINING.format(path=str(tmp_path / "run.yaml")))

    def train() -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        command = (sys.executable, "-c", program)
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=END_S, check=False
        )

    assert train().returncode == -signal.SIGSEGV
    second = train()
    assert second.returncode == 0, second.stderr
    steps, without_loss, served = json.loads(second.stdout.splitlines()[-1])
    assert steps == STEPS
    assert {tuple(row) for row in without_loss} == {ROW}
    assert len(served) > len(without_loss)
