"""Records of who may do what. Their secrets were told once and are not known here."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class AccessAction(StrEnum):
    """What the audit log says about access."""

    TOKEN_CREATED = "token_created"
    TOKEN_REVOKED = "token_revoked"
    LINK_CREATED = "link_created"
    SIGNED_IN = "signed_in"
    SIGNED_OUT = "signed_out"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A secret that was told once, as it is kept: `id` finds its row, `hash` is SHA-256 of what only its owner has."""

    id: str
    hash: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A name that the audit log will carry, and the roles that come with it."""

    name: str
    roles: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRecord:
    """A bearer token. Times are seconds since 1970; `expires_at` None: never."""

    id: str
    grant: Grant
    created_by: str
    created_at: float
    expires_at: float | None
    last_used_at: float | None
    revoked_at: float | None

    def is_good(self, now: float) -> bool:
        """Whether it opens anything."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    """Somebody signed in with a browser. `token`: the API token that it was opened with."""

    id: str
    grant: Grant
    token: str | None
    agent: str
    created_at: float
    seen_at: float
    expires_at: float
