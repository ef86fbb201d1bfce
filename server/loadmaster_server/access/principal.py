"""Who asks, and what they may do."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum

from loadmaster_flight.wire.errors import ForbiddenError


class Role(StrEnum):
    """Each of the first four may do what those before it may. `process` (loaders, constructors, trainers) and `metrics`
    (what reads `GET /metrics`, and nothing else) are apart.

    viewer: sees everything. editor: keeps drafts and previews them. publisher: changes what a run trains on, and lets a
    paused run go on. admin: hands out tokens and ends sessions.
    """

    VIEWER = "viewer"
    EDITOR = "editor"
    PUBLISHER = "publisher"
    ADMIN = "admin"
    PROCESS = "process"
    METRICS = "metrics"


class AccessMode(StrEnum):
    """What somebody may do who has not said who they are.

    off: anything, under the name that the request gives. local: what a process and a viewer may; names are for those
    who change something. token: ask for health and sign in, nothing else.
    """

    OFF = "off"
    LOCAL = "local"
    TOKEN = "token"


LADDER = (Role.VIEWER, Role.EDITOR, Role.PUBLISHER, Role.ADMIN)
ABILITIES = {
    Role.VIEWER: ("view",),
    Role.EDITOR: ("draft", "preview"),
    Role.PUBLISHER: ("publish", "resume"),
    Role.ADMIN: ("manage_access",),
}
NAME_PATTERN = r"^[^\s/\x00-\x1f][^/\x00-\x1f]{0,199}$"
ANONYMOUS = "anonymous"
RESERVED = (ANONYMOUS, "planner")
"""Names that the audit log uses for itself."""


def is_name(text: str) -> bool:
    """Whether somebody may be called so."""
    return re.fullmatch(NAME_PATTERN, text) is not None and text not in RESERVED


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Somebody who asks.

    Attributes:
        name: What the audit log calls them.
        roles: As they were granted.
        session: Id of the browser session that they came with; empty: none.
        is_known: They have said who they are.
        is_free: They may name whom they act for: access is off.
    """

    name: str
    roles: frozenset[Role]
    session: str = ""
    is_known: bool = True
    is_free: bool = False

    @property
    def role(self) -> Role | None:
        """The highest of the first four roles, else `process`; None: no role."""
        ladder = [role for role in LADDER if role in self.roles]
        return ladder[-1] if ladder else next(iter(self.roles), None)

    def has_any(self, *wanted: Role) -> bool:
        """Whether they may do what one of these roles may; without any, everybody may."""
        return not wanted or any(role in self._implied() for role in wanted)

    def abilities(self) -> list[str]:
        """What the console lets them do, in words."""
        return [word for role in LADDER if role in self._implied() for word in ABILITIES[role]]

    def with_roles(self, *more: Role) -> Principal:
        """The same with more roles."""
        return replace(self, roles=self.roles | set(more))

    def _implied(self) -> set[Role]:
        highest = max((LADDER.index(role) for role in self.roles if role in LADDER), default=-1)
        return {*LADDER[: highest + 1], *self.roles}


ANYBODY = Principal(name=ANONYMOUS, roles=frozenset({Role.ADMIN, Role.PROCESS}), is_known=False, is_free=True)
LOCAL = Principal(name=ANONYMOUS, roles=frozenset({Role.VIEWER, Role.PROCESS}), is_known=False)
NOBODY = Principal(name=ANONYMOUS, roles=frozenset(), is_known=False)
UNKNOWN = {AccessMode.OFF: ANYBODY, AccessMode.LOCAL: LOCAL, AccessMode.TOKEN: NOBODY}


def author_of(who: Principal, named: str | None = None) -> str:
    """The name that a change is written down under.

    Args:
        who: Who makes it.
        named: Whom the request names; None: nobody.

    Raises:
        ForbiddenError: The request names somebody else.
    """
    if named is None or named == who.name:
        return who.name
    if who.is_free:
        return named
    raise ForbiddenError(f"author must be who asks, {who.name!r}, or be left out, got {named!r}")
