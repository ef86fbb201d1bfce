"""Secrets: made once, told once, kept as hashes.

Each is `PREFIX_ID_SECRET` with a random secret of 256 bits, so a plain SHA-256 is enough: there is nothing to guess.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from enum import StrEnum

from ..store import Key

ID_BYTES, SECRET_BYTES = 6, 32
_PATTERN = re.compile(r"(lm|lms|lmc)_([0-9a-f]{12})_([0-9a-f]{64})")


class Kind(StrEnum):
    """What a secret is for; its first letters say it."""

    TOKEN = "lm"
    SESSION = "lms"
    CODE = "lmc"


def new_secret(kind: Kind) -> str:
    """A secret that nobody had before."""
    return f"{kind.value}_{secrets.token_hex(ID_BYTES)}_{secrets.token_hex(SECRET_BYTES)}"


def key_of(kind: Kind, text: str) -> Key | None:
    """How the store knows a secret; None: it is none of this kind."""
    found = _PATTERN.fullmatch(text)
    if found is None or found[1] != kind.value:
        return None
    return Key(id=found[2], hash=hashlib.sha256(found[3].encode()).digest())


def csrf_of(session: str) -> str:
    """What a browser must send along with a session's cookie: other sites can have the cookie sent, but not read it."""
    return hashlib.sha256(b"csrf:" + session.encode()).hexdigest()
