"""What a request says about who sends it, and the checks that keep other web sites from sending it."""

from __future__ import annotations

import hmac
import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

from fastapi import Request

from loadmaster_flight.wire.errors import ForbiddenError

from .keys import csrf_of

CSRF_HEADER = "x-loadmaster-csrf"
SAFE = ("GET", "HEAD", "OPTIONS")
FOREIGN = ("cross-site", "same-site")
"""`Sec-Fetch-Site` of a page of another site, and of another port or sub-domain of this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The parts of a request that matter here. Empty: not sent.

    Attributes:
        target: Method and path.
        route: Name of the route, the same for all paths of it.
        address: Where it came from.
    """

    method: str
    target: str
    route: str
    host: str
    origin: str
    fetch_site: str
    bearer: str
    cookie: str
    csrf: str
    address: str
    agent: str

    @property
    def is_safe(self) -> bool:
        """Its method changes nothing."""
        return self.method in SAFE

    @property
    def is_unnamed(self) -> bool:
        """It says nothing about who sends it."""
        return not self.bearer and not self.cookie


def caller_of(request: Request) -> Caller:
    """Read a request."""
    headers = request.headers
    scheme, _, credentials = headers.get("authorization", "").partition(" ")
    return Caller(
        method=request.method,
        target=f"{request.method} {request.url.path}",
        route=getattr(request.scope.get("route"), "name", ""),
        host=headers.get("host", ""),
        origin=headers.get("origin", ""),
        fetch_site=headers.get("sec-fetch-site", ""),
        bearer=credentials.strip() if scheme.lower() == "bearer" else "",
        cookie=request.cookies.get(cookie_name(headers.get("host", "")), ""),
        csrf=headers.get(CSRF_HEADER, ""),
        address=request.client.host if request.client else "",
        agent=headers.get("user-agent", ""),
    )


def cookie_name(host: str) -> str:
    """Cookies know no ports: planners of one machine must not overwrite each other's."""
    return f"loadmaster_session_{_split(host)[1]}"


def check_site(caller: Caller) -> None:
    """Refuse what a page of another site sends.

    Raises:
        ForbiddenError: It comes from elsewhere; says by which header.
    """
    if caller.fetch_site in FOREIGN:
        raise ForbiddenError(
            f"{caller.target} was sent by a page of another site (Sec-Fetch-Site: {caller.fetch_site})"
        )
    if caller.origin and not caller.is_safe and not _is_same(caller):
        raise ForbiddenError(f"{caller.target} was sent by a page of {caller.origin}, not of {caller.host}")


def check_host(caller: Caller) -> None:
    """Refuse a name that some other site may have made point here (DNS rebinding).

    Raises:
        ForbiddenError: The Host header is no loopback address.
    """
    name = _split(caller.host)[0]
    if name == "localhost" or name.endswith(".localhost"):
        return
    try:
        if ipaddress.ip_address(name).is_loopback:
            return
    except ValueError:
        pass
    raise ForbiddenError(f"Host must be a loopback address such as 127.0.0.1 or localhost, got {caller.host!r}")


def check_csrf(caller: Caller) -> None:
    """Refuse a change that comes with a cookie only.

    Raises:
        ForbiddenError: The header that only our own pages can send is missing or wrong, or so is Origin.
    """
    if caller.is_safe:
        return
    if not _is_same(caller):
        raise ForbiddenError(f"Origin must be that of {caller.host}, got {caller.origin!r}")
    if not hmac.compare_digest(caller.csrf.encode(), csrf_of(caller.cookie).encode()):
        raise ForbiddenError(f"{CSRF_HEADER} must be the `csrf` of GET /api/v1/session; it is missing or another one")


def _is_same(caller: Caller) -> bool:
    return bool(caller.host) and urlsplit(caller.origin).netloc.lower() == caller.host.lower()


def _split(host: str) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{host}")
        return parts.hostname or "", parts.port or 80
    except ValueError:
        return "", 80
