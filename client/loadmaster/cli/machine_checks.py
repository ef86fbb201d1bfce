"""Checks of `loadmaster doctor` that look at this machine and its Python."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import socket
import sys
from collections.abc import Iterator
from importlib.metadata import metadata

from .findings import DoctorCase, Finding, check_package, fail, installed, ok, required_packages, skip, warn

MIB = 1 << 20
SHM = "/dev/shm"
SHM_BYTES = 1 << 30
FEW_FILES, ENOUGH_FILES = 256, 4096
CLIENT = "loadmaster"


def check_machine(case: DoctorCase) -> Iterator[Finding]:
    """Python, packages, shared memory, open files, ports."""
    yield _python()
    for name, least in required_packages():
        yield check_package(name, least, how=CLIENT)
    yield _torch()
    yield _shared_memory()
    yield _open_files()
    yield _loopback()
    for port in case.ports:
        yield _port(case.host, port)


def _python() -> Finding:
    wanted = metadata("loadmaster")["Requires-Python"] or ""
    found = f"{platform.python_version()} ({sys.executable})"
    least = tuple(int(part) for part in wanted.removeprefix(">=").split(".") if part.isdigit())
    if sys.version_info[: len(least)] < least:
        return fail("python", found, f"install Python {wanted.removeprefix('>=')} or newer")
    return ok("python", found)


def _torch() -> Finding:
    found = installed("torch")
    if found is None:
        return skip("torch", "is not installed: batches are numpy arrays (framework='numpy')")
    return ok("torch", found)


def _shared_memory() -> Finding:
    if not os.path.isdir(SHM):
        return skip("shared memory", f"there is no {SHM} on this system")
    usage = shutil.disk_usage(SHM)
    found = f"{usage.free // MIB:,} MiB free of {usage.total // MIB:,} MiB in {SHM}"
    if not os.access(SHM, os.W_OK):
        return fail("shared memory", f"{SHM} cannot be written to", f"chmod 1777 {SHM}")
    if usage.free < SHM_BYTES:
        return warn("shared memory", found, "workers of torch pass batches through it: docker run --shm-size=1g")
    return ok("shared memory", found)


def _open_files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found, fix = f"at most {soft:,} (hard limit {hard:,})", f"ulimit -n {max(ENOUGH_FILES, min(hard, 65_536))}"
    if hard < ENOUGH_FILES:
        fix = f"raise the hard limit to {ENOUGH_FILES}: limits.conf, LimitNOFILE=, or docker run --ulimit nofile"
    if soft < FEW_FILES:
        return fail("open files", found, fix)
    if soft < ENOUGH_FILES:
        return warn("open files", f"{found}: too few for a loader of hundreds of sources", fix)
    return ok("open files", found)


def _loopback() -> Finding:
    try:
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname(), 2):
            return ok("loopback", "a port of 127.0.0.1 can be listened on and reached")
    except OSError as error:
        return fail("loopback", f"127.0.0.1: {error.strerror or error}", "bring it up: ip link set lo up")


def _port(host: str, port: int) -> Finding:
    name = f"port {port}"
    try:
        with socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET):
            return ok(name, f"free at {host}")
    except OSError as error:
        return fail(name, f"{host}: {error.strerror or error}", f"end what listens there (ss -ltnp 'sport = :{port}')")
