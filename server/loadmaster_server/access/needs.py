"""The one way in which a route says who may call it."""

from __future__ import annotations

from typing import Any

from fastapi import Depends, Request

from .principal import Principal, Role
from .service import AccessService


class Needs:
    """A dependency that lets a caller through who has one of the roles. Without roles everybody gets through."""

    def __init__(self, *roles: Role) -> None:
        self.roles = roles

    async def __call__(self, request: Request) -> Principal:
        """Who asks.

        Raises:
            UnauthenticatedError: Nobody has said who it is, and it must be known.
            ForbiddenError: They have none of the roles, or a page of another site sent the request.
        """
        access: AccessService = request.app.state.access
        return await access.admit(request, self.roles)


def needs(*roles: Role) -> Any:
    """Declare who may call a route; every route must, a test walks over all of them.

    As `dependencies=[needs(Role.VIEWER)]`, or as a parameter `who: Annotated[Principal, needs(Role.EDITOR)]`. Several
    roles: any of them will do; none: everybody may.
    """
    return Depends(Needs(*roles))
