"""Finding a tokenizer that lies about."""

from __future__ import annotations

import itertools
from pathlib import Path

TOKENIZER_FILE = "tokenizer.json"
FOLDERS_ABOVE = 2


def find_tokenizer(folder: Path) -> Path | None:
    """The nearest tokenizer.json: in a folder, below it, in the folders just above, or in the working directory."""
    nearby = itertools.chain([folder], folder.absolute().parents[:FOLDERS_ABOVE], [Path.cwd()])
    beside = next((place / TOKENIZER_FILE for place in nearby if (place / TOKENIZER_FILE).is_file()), None)
    below = sorted(folder.glob(f"*/{TOKENIZER_FILE}"))
    if beside is None or beside.parent != folder:
        return next(iter(below), beside)
    return beside
