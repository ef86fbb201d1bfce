"""What travels over HTTP about who may do what. Times are seconds since 1970."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from .principal import NAME_PATTERN, AccessMode, Role

Name = Annotated[str, Field(pattern=NAME_PATTERN)]
Secret = Annotated[str, Field(max_length=200)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class HealthView(_Body):
    """The planner answers, and acts."""

    status: str
    access: AccessMode
    version: str
    """Of the planner's package."""
    time: float
    """By the planner's clock."""


class SignInRequest(_Body):
    """One of both: the code of a one-time link, or an API token."""

    code: Secret | None = None
    token: Secret | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> SignInRequest:
        if (self.code is None) == (self.token is None):
            raise ValueError("give either code or token")
        return self


class SessionView(_Body):
    """Who asks."""

    name: str
    role: Role
    """The highest of viewer, editor, publisher and admin; `process` where there is none of them."""
    roles: list[Role]
    csrf: str
    """Send it as X-Loadmaster-Csrf with everything that changes something; empty: there is no browser session."""
    can: list[str]
    """view, draft, preview, publish, resume, manage_access."""
    access: AccessMode
    """off: nobody need sign in. local: what changes something needs a name. token: everything does."""
    expires_at: float | None


class SessionHead(_Body):
    """A browser session. `agent`: what the browser calls itself; `token`: the API token that it was opened with."""

    id: str
    name: str
    roles: list[Role]
    token: str | None
    agent: str
    created_at: float
    seen_at: float
    expires_at: float
    is_current: bool


class TokenRequest(_Body):
    """Hand out a token."""

    name: Name
    roles: Annotated[list[Role], Field(min_length=1)]
    expires_in_s: Annotated[float | None, Field(gt=0, le=10 * 366 * 86400)] = None
    """None: never."""


class TokenView(_Body):
    """A bearer token. `last_used_at` is right within a minute."""

    id: str
    name: str
    roles: list[Role]
    created_by: str
    created_at: float
    expires_at: float | None
    last_used_at: float | None
    revoked_at: float | None
    is_good: bool
    """Neither revoked nor too old."""


class NewTokenView(TokenView):
    """A token that was just made."""

    token: str
    """The secret itself; it is not told again."""
