"""A planner, a loader and a constructor that talk TLS and answer nobody unknown, in this process."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq

import loadmaster
from loadmaster_flight.constructor.process import ConstructorProcess
from loadmaster_flight.loader.process import LoaderProcess
from loadmaster_flight.spec import load_run_spec
from loadmaster_flight.wire.http import PlannerClient
from loadmaster_flight.wire.tls import Tls
from loadmaster_server.access import AccessMode, Role
from loadmaster_server.certificates import make_certificates
from loadmaster_server.freezing import freeze_run
from loadmaster_server.launch import register_run
from loadmaster_server.serving import PlannerServer
from loadmaster_server.settings import PlannerSettings
from loadmaster_server.store import StreamKey

RUN = "secured"
WORDS = ["the", "loader", "reads", "every", "manifest", "and", "balances", "the", "weight", "over", "the", "hold"]
NAMES = ("planner", "loader", "constructor", "trainer")


@dataclass(slots=True, kw_only=True)
class Secured:
    """What is there, and the way in. One thread uses it."""

    folder: Path
    certificates: Path
    server: PlannerServer
    loader: LoaderProcess
    constructor: ConstructorProcess

    @property
    def url(self) -> str:
        """Of the planner."""
        return self.server.url

    def tls(self, name: str = "trainer", **changes: Any) -> Tls:
        """The certificates of one of them."""
        return tls_in(self.certificates, name, **changes)

    def token(self, name: str, *roles: Role, **more: Any) -> str:
        """A token that was handed out."""
        return self.server.planner.access.create_token(name, roles, by="test", **more)[0]

    def client(self, token: str, *, name: str = "trainer") -> PlannerClient:
        """Calls the planner with a token."""
        return PlannerClient(self.url, token=token, tls=self.tls(name))


def tls_in(folder: Path, whose: str, **changes: Any) -> Tls:
    """Certificates as `make_certificates` calls them."""
    pair = {"cert": folder / f"{whose}.pem", "key": folder / f"{whose}.key"}
    return Tls(**{**pair, "ca": folder / "ca.pem", **changes})


@contextmanager
def secured(folder: Path, tokenizer: Path, *, is_mutual: bool = False) -> Iterator[Secured]:
    """Start all three and a run that anybody with a token and the authority can read.

    Args:
        folder: Empty.
        tokenizer: Of the run.
        is_mutual: Callers need a certificate too.
    """
    certificates = folder / "certificates"
    make_certificates(certificates, [[name] for name in NAMES], days=1)
    token_file = folder / "token"
    with ExitStack() as stack:
        environment = {"LOADMASTER_TOKEN_FILE": str(token_file), "LOADMASTER_TOKEN": ""}
        stack.enter_context(patch.dict(os.environ, environment))
        planner = tls_in(certificates, "planner", is_mutual=is_mutual)
        settings = PlannerSettings(state_dir=folder / "state", access=AccessMode.TOKEN, tls=planner, heartbeat_s=0.1)
        server = stack.enter_context(PlannerServer(settings))
        access = server.planner.access
        token_file.write_text(access.create_token("processes", [Role.PROCESS], by="test")[0])
        loader_tls = tls_in(certificates, "loader", is_mutual=is_mutual, name="loader")
        loader = stack.enter_context(LoaderProcess(server.url, workers=1, tls=loader_tls))
        own = tls_in(certificates, "constructor", is_mutual=is_mutual)
        constructor = stack.enter_context(ConstructorProcess(server.url, tls=own))
        plane = Secured(folder=folder, certificates=certificates, server=server, loader=loader, constructor=constructor)
        _create_run(plane, tokenizer)
        yield plane


def steps(plane: Secured, num_steps: int) -> list[list[int]]:
    """Which steps both ranks get, as trainers with a token and a certificate of their own."""
    own = {"LOADMASTER_TOKEN_FILE": "", "LOADMASTER_TOKEN": plane.token("trainer", Role.PROCESS)}
    tls = plane.tls()

    def read_rank(rank: int) -> list[int]:
        with loadmaster.connect(
            plane.url, run=RUN, rank=rank, world_size=2, framework="numpy", timeout_s=120,
            tls_ca=tls.ca, tls_cert=tls.cert, tls_key=tls.key,
        ) as stream:  # fmt: skip
            return [next(stream).step for _ in range(num_steps)]

    with patch.dict(os.environ, own), ThreadPoolExecutor(2) as pool:
        return list(pool.map(read_rank, range(2)))


def read(plane: Secured, num_steps: int) -> int:
    """Have both ranks read some steps; returns the generation that they opened."""
    steps(plane, num_steps)
    newest = plane.server.planner.store.generations.newest(StreamKey(run=RUN, stream="train"))
    assert newest is not None
    return newest.key.generation


def _create_run(plane: Secured, tokenizer: Path) -> None:
    rng = random.Random(7)
    rows = [" ".join(rng.choices(WORDS, k=rng.randint(5, 40))) for _ in range(400)]
    pq.write_table(pa.table({"text": rows}), plane.folder / "prose.parquet", row_group_size=50)
    path = plane.folder / "run.yaml"
    path.write_text(
        f"run: {RUN}\nseed: 3\ntokenizer: {tokenizer}\n"
        f"sources: {{prose: {{uri: {plane.folder / 'prose.parquet'}, transform: {{text: text}}}}}}\n"
        "mixture: {weights: {prose: 1}}\nbatch: {seq_len: 128, microbatches: 4, align: 16}\nmesh: {dp: 2}\n"
    )
    spec = load_run_spec(path)
    token = plane.token("owner", Role.PUBLISHER)
    register_run(plane.url, spec, freeze_run(spec), timeout_s=120, token=token, tls=plane.tls())
