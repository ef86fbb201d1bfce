"""A private authority, and what it signs."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from cryptography import x509

from loadmaster_flight.wire.errors import BadRequestError, SourceError
from loadmaster_server.certificates import make_certificates
from loadmaster_server.cli.certificates import main


def _names(path: Path) -> set[str]:
    cert = x509.load_pem_x509_certificate(path.read_bytes())
    found = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {*found.get_values_for_type(x509.DNSName), *map(str, found.get_values_for_type(x509.IPAddress))}


def test_certificates_when_made_then_good_for_their_names_and_this_machine(tmp_path: Path) -> None:
    made = make_certificates(tmp_path, [["planner", "planner.example.org", "*.lm.internal", "10.0.0.5"]], days=1)
    assert [path.name for path in made] == ["ca.pem", "planner.pem"]
    here = {"localhost", "127.0.0.1", "::1"}
    assert _names(made[1]) == {"planner", "planner.example.org", "*.lm.internal", "10.0.0.5"} | here


def test_keys_when_made_then_nobody_else_reads_them(tmp_path: Path) -> None:
    make_certificates(tmp_path, [["planner"]], days=1)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.glob("*.key")}
    assert modes == {"ca.key": 0o600, "planner.key": 0o600}


def test_certificates_when_made_again_then_the_authority_stays_and_they_are_renewed(tmp_path: Path) -> None:
    before = [path.read_bytes() for path in make_certificates(tmp_path, [["planner"]], days=1)]
    after = [path.read_bytes() for path in make_certificates(tmp_path, [["planner"]], days=1)]
    assert before[0] == after[0]
    assert before[1] != after[1]


@pytest.mark.parametrize("names", [["ca"], ["a/b"], ["10.0.0.5"], ["*.internal"], [""], ["planner", "no name"]])
def test_certificates_when_a_name_is_none_then_refused_and_nothing_is_written(tmp_path: Path, names: list[str]) -> None:
    with pytest.raises(BadRequestError, match="name"):
        make_certificates(tmp_path / "new", [names], days=1)
    assert not (tmp_path / "new").exists()


def test_certificates_when_the_authority_is_broken_then_it_is_not_replaced(tmp_path: Path) -> None:
    make_certificates(tmp_path, [], days=1)
    (tmp_path / "ca.key").unlink()
    with pytest.raises(SourceError, match="take another folder"):
        make_certificates(tmp_path, [["planner"]], days=1)


def test_command_when_run_then_says_what_it_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path), "--name", "planner,localhost", "--name", "loader", "--days", "2"]) == 0
    assert capsys.readouterr().out.splitlines()[2] == f"{tmp_path / 'loader.pem'}  {tmp_path / 'loader.key'}"
    assert main([str(tmp_path), "--name", "no name"]) == 2
    assert "must be a host name or an address" in capsys.readouterr().err
