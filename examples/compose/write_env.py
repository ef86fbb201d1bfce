"""Write the .env that docker-compose.yml reads: random passwords, readable by its owner alone. `make compose-env`.

A file that is there is never overwritten: its password is that of the database.
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path

PASSWORDS = ("POSTGRES_PASSWORD", "GRAFANA_PASSWORD")
PORTS = {
    "LOADMASTER_PORT": 8700,
    "LOADMASTER_CONSTRUCTOR_1_PORT": 8711,
    "LOADMASTER_CONSTRUCTOR_2_PORT": 8712,
    "GRAFANA_PORT": 3000,
}
"""Published on 127.0.0.1."""


def main(argv: Sequence[str] | None = None) -> int:
    """Write the file; 2 where there is one."""
    parser = argparse.ArgumentParser(description="Write the .env of docker-compose.yml, once.")
    parser.add_argument("file", type=Path, nargs="?", default=Path(__file__).parents[2] / ".env")
    file = parser.parse_args(argv).file
    try:
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
            out.write(contents())
    except FileExistsError:
        print(f"{file.name} is there and stays as it is. To begin anew: `docker compose down -v`, then remove it",
              file=sys.stderr)  # fmt: skip
        return 2
    print(f"wrote {file.name}")
    return 0


def contents() -> str:
    """Other passwords at each call."""
    passwords = [f"{name}={secrets.token_hex(32)}" for name in PASSWORDS]
    return "\n".join([*passwords, *(f"{name}={port}" for name, port in PORTS.items())]) + "\n"


if __name__ == "__main__":
    sys.exit(main())
