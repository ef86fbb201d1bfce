"""What a process says who it is with: a bearer token, from the environment or from a file that may change."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from .errors import BadRequestError

TOKEN_VARIABLE = "LOADMASTER_TOKEN"
TOKEN_FILE_VARIABLE = "LOADMASTER_TOKEN_FILE"


class BearerToken:
    """A token. Any thread may use it.

    Args:
        token: The token; empty: none. None: that in the file LOADMASTER_TOKEN_FILE, or else LOADMASTER_TOKEN.

    Raises:
        BadRequestError: It could not be sent, or the file cannot be read.
    """

    def __init__(self, token: str | None = None, *, environment: Mapping[str, str] = os.environ) -> None:
        file = environment.get(TOKEN_FILE_VARIABLE, "") if token is None else ""
        self._file = Path(file) if file else None
        self._text = _checked(environment.get(TOKEN_VARIABLE, "") if token is None else token)
        if self._file is not None:
            self._text = _read(self._file)

    @property
    def text(self) -> str:
        """The token; empty: none."""
        return self._text

    def renew(self, refused: str) -> bool:
        """A token was refused: read the file again. Whether there is another one now."""
        if self._file is not None and self._text == refused:
            with contextlib.suppress(BadRequestError):  # it is being replaced: the next refusal comes here again
                self._text = _read(self._file)
        return self._text != refused


def _read(path: Path) -> str:
    try:
        return _checked(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequestError(f"{TOKEN_FILE_VARIABLE} must name a file with a token, {path}: {error}") from error


def _checked(token: str) -> str:
    token = token.strip()
    if not all("!" <= character <= "~" for character in token):
        raise BadRequestError(
            f"{TOKEN_VARIABLE} must be a token of `loadmaster token create`: one word of plain letters"
        )
    return token
