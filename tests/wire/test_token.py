"""What a process says who it is with."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadmaster_flight.wire.errors import BadRequestError
from loadmaster_flight.wire.token import BearerToken


def test_token_when_there_is_a_file_then_it_goes_before_the_variable(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one\n")
    environment = {"LOADMASTER_TOKEN_FILE": str(file), "LOADMASTER_TOKEN": "other"}
    assert BearerToken(environment=environment).text == "one"
    assert BearerToken("given", environment=environment).text == "given"
    assert BearerToken(environment={"LOADMASTER_TOKEN": "other"}).text == "other"
    assert BearerToken(environment={}).text == ""


def test_renew_when_the_file_has_another_token_then_it_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one")
    token = BearerToken(environment={"LOADMASTER_TOKEN_FILE": str(file)})
    assert not token.renew("one")
    file.write_text("two")
    assert token.renew("one")
    assert token.text == "two"
    assert token.renew("one"), "another thread was refused the old one as well"
    file.unlink()
    assert not token.renew("two")


@pytest.mark.parametrize("text", ["two words", "tökén"])
def test_token_when_it_cannot_be_sent_then_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadRequestError, match="one word of plain letters"):
        BearerToken(text)


def test_token_when_its_file_is_missing_then_named(tmp_path: Path) -> None:
    with pytest.raises(BadRequestError, match=r"LOADMASTER_TOKEN_FILE must name a file with a token, .*nothing"):
        BearerToken(environment={"LOADMASTER_TOKEN_FILE": str(tmp_path / "nothing")})
