"""A private certificate authority for tests and compose: enough to try TLS with, and to renew it.

Its key lies beside what it signs, so it is as safe as that folder is: a site has an authority of its own.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from loadmaster_flight.wire.errors import BadRequestError, SourceError

CA = "ca"
CA_DAYS = 3650.0
EVERYWHERE = ("localhost", "127.0.0.1", "::1")
"""Every certificate is good on its own machine too, for health checks and tests."""
BEFORE = datetime.timedelta(minutes=5)
"""Clocks differ: a certificate is good from a little before it was made."""
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """Who signs: a certificate and its key."""

    cert: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def make_certificates(folder: Path, names: Sequence[Sequence[str]], *, days: float) -> list[Path]:
    """Write NAME.pem and NAME.key for each, and before that ca.pem and ca.key where they are missing.

    What is there is replaced: that is how a certificate is renewed. The authority stays.

    Args:
        folder: Made when it is missing.
        names: For each certificate its names; the first one is that of the files.
        days: For how long they are good.

    Returns:
        The certificates, that of the authority first.

    Raises:
        BadRequestError: A name is no host name or address, or is `ca`.
        SourceError: The authority in the folder cannot be read.
    """
    for several in names:
        _check(several)
    folder.mkdir(parents=True, exist_ok=True)
    authority = _authority(folder)
    return [folder / f"{CA}.pem", *(_issue(folder, authority, several, days) for several in names)]


def _check(names: Sequence[str]) -> None:
    for name in names:
        if len(name) > 253 or not (_NAME.fullmatch(name.removeprefix("*.")) or _address(name)):
            raise BadRequestError(f"name must be a host name or an address, got {name!r}")
    if not names or len(names[0]) > 64 or _address(names[0]) or names[0] == CA or "*" in names[0]:
        raise BadRequestError(
            f"the first name is that of the files: a host name of at most 64 characters, not {CA}, got {names!r}"
        )


def _authority(folder: Path) -> Authority:
    cert_path, key_path = folder / f"{CA}.pem", folder / f"{CA}.key"
    if not cert_path.exists() and not key_path.exists():
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Loadmaster private CA")])
        usage = _usage(key_cert_sign=True, crl_sign=True)
        builder = _builder(subject, subject, key, CA_DAYS).add_extension(usage, critical=True)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        _write_pair(folder, CA, builder.sign(key, hashes.SHA256()), key)
    try:
        cert = x509.load_pem_x509_certificate(cert_path.read_bytes())
        key_found = serialization.load_pem_private_key(key_path.read_bytes(), password=None)
    except (OSError, ValueError) as error:
        raise SourceError(f"the authority of {folder} cannot be read: {error}; take another folder") from error
    if not isinstance(key_found, ec.EllipticCurvePrivateKey) or cert.public_key() != key_found.public_key():
        raise SourceError(f"{key_path} is not the key of {cert_path}: take another folder")
    return Authority(cert=cert, key=key_found)


def _issue(folder: Path, authority: Authority, names: Sequence[str], days: float) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    purposes = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    builder = (
        _builder(subject, authority.cert.subject, key, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(purposes, critical=False)
        .add_extension(issuer, critical=False)
        .add_extension(_alternatives(names), critical=False)
    )
    return _write_pair(folder, names[0], builder.sign(authority.key, hashes.SHA256()), key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: float
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BEFORE)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _alternatives(names: Sequence[str]) -> x509.SubjectAlternativeName:
    every = list(dict.fromkeys([*names, *EVERYWHERE]))
    addresses = [_address(name) for name in every]
    return x509.SubjectAlternativeName(
        [
            x509.DNSName(name) if address is None else x509.IPAddress(address)
            for name, address in zip(every, addresses, strict=True)
        ]
    )


def _usage(**on: bool) -> x509.KeyUsage:
    every = (
        "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
        "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
    )  # fmt: skip
    return x509.KeyUsage(**{name: on.get(name, False) for name in every})


def _write_pair(folder: Path, name: str, cert: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Path:
    """The key first: who follows the files waits until both fit."""
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    _write(folder / f"{name}.key", pem, 0o600)
    _write(folder / f"{name}.pem", cert.public_bytes(serialization.Encoding.PEM), 0o644)
    return folder / f"{name}.pem"


def _write(path: Path, data: bytes, mode: int) -> None:
    """As a whole, and never readable by more than `mode` says."""
    part = path.with_name(path.name + ".part")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)
    part.replace(path)


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None
