"""TLS of HTTP and Flight: one description of a process's certificates, for what it serves and for what it calls.

Files are read when a connection or a server is opened, so a client follows files that were replaced.
"""

from __future__ import annotations

import argparse
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from .addresses import is_loopback
from .errors import BadRequestError, UnavailableError

CERT_VARIABLE = "LOADMASTER_TLS_CERT"
KEY_VARIABLE = "LOADMASTER_TLS_KEY"
CA_VARIABLE = "LOADMASTER_TLS_CA"
MUTUAL_VARIABLE = "LOADMASTER_TLS_MUTUAL"
NAME_VARIABLE = "LOADMASTER_TLS_NAME"
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("", "0", "false", "no", "off")
Stamp = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """The certificates of one process, as PEM files. Without any: no TLS for what it serves.

    Attributes:
        cert: Its own chain; shown to who calls it, and to whom it calls.
        key: The private key of it.
        ca: Authorities that others' certificates must be signed by; None: those that the system trusts.
        is_mutual: Whoever calls it must have a certificate too, signed by `ca`.
        name: The name in its certificate, where others do not reach it by that: replicas that share one.

    Raises:
        BadRequestError: One of cert and key without the other; mutual without both and a ca.
    """

    cert: Path | None = None
    key: Path | None = None
    ca: Path | None = None
    is_mutual: bool = False
    name: str = ""

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            missing = f"--tls-key ({KEY_VARIABLE})" if self.key is None else f"--tls-cert ({CERT_VARIABLE})"
            raise BadRequestError(f"a certificate and its key go together: {missing} is missing")
        if self.is_mutual and (self.cert is None or self.ca is None):
            raise BadRequestError(
                f"--tls-mutual ({MUTUAL_VARIABLE}) needs --tls-cert and --tls-key, and --tls-ca ({CA_VARIABLE}), which "
                "signs the certificates of who may call"
            )

    @property
    def is_serving(self) -> bool:
        """Whether what this process serves is served with TLS."""
        return self.cert is not None

    def stamp(self) -> Stamp:
        """Changes when one of the files does.

        Raises:
            UnavailableError: One cannot be read; names it.
        """
        return tuple(_stamp_of(path) for path in (self.cert, self.key, self.ca) if path is not None)

    def client_context(self) -> ssl.SSLContext:
        """For calling over HTTP; the same one until the files change.

        Raises:
            UnavailableError: A file cannot be read or is none of its kind; names it.
        """
        return _client_context(self, self.stamp())

    def server_context(self) -> ssl.SSLContext:
        """For serving HTTP; a new one each time.

        Raises:
            UnavailableError: As `client_context`.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        _load(context, self)
        if self.is_mutual:
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def flight_client(self) -> dict[str, Any]:
        """Keyword arguments of a FlightClient that calls with TLS."""
        arguments: dict[str, Any] = {}
        if self.ca is not None:
            arguments["tls_root_certs"] = _read(self.ca)
        if self.cert is not None and self.key is not None:
            arguments |= {"cert_chain": _read(self.cert), "private_key": _read(self.key)}
        return arguments

    def flight_server(self) -> dict[str, Any]:
        """Keyword arguments of a FlightServerBase; none without a certificate."""
        if self.cert is None or self.key is None:
            return {}
        self.server_context()  # gRPC takes any bytes, and refuses every caller then
        arguments: dict[str, Any] = {"tls_certificates": [(_read(self.cert), _read(self.key))]}
        if self.is_mutual and self.ca is not None:
            arguments |= {"verify_client": True, "root_certificates": _read(self.ca)}
        return arguments

    def as_environment(self) -> dict[str, str]:
        """The variables that make another process use the same certificates."""
        values = {CERT_VARIABLE: self.cert, KEY_VARIABLE: self.key, CA_VARIABLE: self.ca, NAME_VARIABLE: self.name}
        told = {name: str(value) for name, value in values.items() if value}
        return told | ({MUTUAL_VARIABLE: "1"} if self.is_mutual else {})


def tls_of_environment(environment: Mapping[str, str] = os.environ) -> Tls:
    """What LOADMASTER_TLS_CERT, _KEY, _CA, _MUTUAL and _NAME say.

    Raises:
        BadRequestError: They do not go together, or _MUTUAL is neither 1 nor 0.
    """
    is_mutual = environment.get(MUTUAL_VARIABLE, "").strip().lower()
    if is_mutual not in (*_TRUE, *_FALSE):
        raise BadRequestError(f"{MUTUAL_VARIABLE} must be 1 or 0, got {is_mutual!r}")
    return Tls(
        cert=_path(environment.get(CERT_VARIABLE)),
        key=_path(environment.get(KEY_VARIABLE)),
        ca=_path(environment.get(CA_VARIABLE)),
        is_mutual=is_mutual in _TRUE,
        name=environment.get(NAME_VARIABLE, ""),
    )


def add_tls(parser: argparse.ArgumentParser, *, serves: bool) -> None:
    """Options that say which certificates a process uses; each has a variable of the environment behind it."""
    whose = "of this process" if serves else "to show where callers must have one"
    parser.add_argument("--tls-cert", type=Path, metavar="PEM", help=f"certificate {whose} ({CERT_VARIABLE})")
    parser.add_argument("--tls-key", type=Path, metavar="PEM", help=f"its private key ({KEY_VARIABLE})")
    parser.add_argument("--tls-ca", type=Path, metavar="PEM", help=f"who signs others' certificates ({CA_VARIABLE})")
    if serves:
        about = f"let only callers in who have a certificate ({MUTUAL_VARIABLE}=1)"
        parser.add_argument("--tls-mutual", action="store_true", default=None, help=about)


def tls_of(args: argparse.Namespace) -> Tls:
    """What the options of `add_tls` say, and the environment where they say nothing.

    Raises:
        BadRequestError: They do not go together.
    """
    given = {CERT_VARIABLE: args.tls_cert, KEY_VARIABLE: args.tls_key, CA_VARIABLE: args.tls_ca}
    given[MUTUAL_VARIABLE] = getattr(args, "tls_mutual", None)
    told = {name: str(value) for name, value in given.items() if value is not None}
    return tls_of_environment({**os.environ, **told})


def check_listening(host: str, tls: Tls, *, needs: str = "", is_met: bool = True) -> None:
    """Refuse to serve beyond this machine what is not secured.

    Args:
        host: Where to listen.
        tls: What is served is served with.
        needs: What else it takes, as an option.
        is_met: Whether that is so.

    Raises:
        BadRequestError: It is not; says what to do.
    """
    if is_loopback(host) or (tls.is_serving and is_met):
        return
    missing = [] if tls.is_serving else ["--tls-cert and --tls-key"]
    missing += [] if is_met else [needs]
    wanted = "TLS" + (f" and {needs}" if needs else "")
    raise BadRequestError(
        f"host must be a loopback address unless there is {wanted}, got {host!r}: add {' and '.join(missing)} "
        "(`loadmaster certificates` makes some), or listen at 127.0.0.1"
    )


def _load(context: ssl.SSLContext, tls: Tls) -> None:
    try:
        if tls.cert is not None:
            context.load_cert_chain(tls.cert, tls.key)
        if tls.ca is not None:
            context.load_verify_locations(tls.ca)
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(str(path) for path in (tls.cert, tls.key, tls.ca) if path is not None)
        raise UnavailableError(f"the certificates {files} cannot be used: {error}") from error


@lru_cache(maxsize=16)
def _client_context(tls: Tls, stamp: Stamp) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if tls.ca is None:
        context.load_default_certs()
    _load(context, tls)
    return context


def _stamp_of(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except OSError as error:
        raise UnavailableError(f"certificate file {path} cannot be read: {error.strerror}") from error
    return found.st_mtime_ns, found.st_size, found.st_ino


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UnavailableError(f"certificate file {path} cannot be read: {error.strerror}") from error


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None
