"""Where processes are reached, and what may go there in plain text: nothing that leaves this machine."""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import parse_qs, quote, urlsplit

from .errors import BadRequestError

ANY = ("", "0.0.0.0", "::")
"""Hosts to listen at that name no host: all networks of the machine."""
MAX_ADDRESS = 255


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, by an address or name that no other machine can have."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_of(address: str) -> str:
    """The host of `scheme://host:port`.

    Raises:
        BadRequestError: It is no address, or has no host.
    """
    try:
        host, _ = urlsplit(address).hostname, urlsplit(address).port
    except ValueError as error:  # brackets without an end, a port that is none
        raise BadRequestError(f"address must look like grpc://host:port, got {address!r} ({error})") from error
    if not host:
        raise BadRequestError(f"address must look like grpc://host:port, got {address!r}")
    return host


def refuse_plain(address: str) -> None:
    """Refuse to call another machine without TLS: tokens, tickets and samples would cross the network in the clear.

    Raises:
        BadRequestError: It is no address, or a plain one of another machine.
    """
    host, scheme = host_of(address), urlsplit(address).scheme
    if scheme in ("http", "grpc", "grpc+tcp") and not is_loopback(host):
        secure = "https" if scheme == "http" else "grpc+tls"
        raise BadRequestError(
            f"{address} is plain text, which goes to loopback addresses alone, and {host!r} is none: "
            f"serve it with TLS and call it as {secure}://"
        )


def check_flight_address(address: str) -> None:
    """Refuse what no process of ours may be reached at.

    Raises:
        BadRequestError: It is no Flight address, too long, has no port, or is a plain one of another machine.
    """
    if len(address) > MAX_ADDRESS:
        raise BadRequestError(f"address must have at most {MAX_ADDRESS} characters, got {len(address)}")
    host_of(address)
    if urlsplit(address).scheme not in ("grpc", "grpc+tls"):
        raise BadRequestError(f"address must look like grpc://host:port or grpc+tls://host:port, got {address!r}")
    refuse_plain(address)
    if not urlsplit(address).port:
        raise BadRequestError(f"address must have a port, got {address!r}")
    location_of(address)


def location_of(address: str) -> tuple[str, str]:
    """A Flight address in two: where to connect, and the name that its certificate must have (empty: the host's).

    `grpc+tls://10.0.0.5:5005?name=loader` is a process whose certificate is for `loader`: replicas share one.

    Raises:
        BadRequestError: Something else comes after the port.
    """
    parts = urlsplit(address)
    query = parse_qs(parts.query, keep_blank_values=True)
    if parts.path not in ("", "/") or parts.fragment or query.keys() - {"name"}:
        raise BadRequestError(f"only ?name= may come after host and port, got {address!r}")
    return f"{parts.scheme}://{parts.netloc}", query.get("name", [""])[0]


def address_at(scheme: str, host: str, port: int, *, name: str = "") -> str:
    """The address of a process that listens at a host; where that is all networks, under the machine's name."""
    host = socket.gethostname() if host in ANY else host
    place = f"[{host}]" if ":" in host else host
    return f"{scheme}://{place}:{port}" + (f"?name={quote(name)}" if name else "")
