"""From a run spec to the transform of a source; what can be known to be wrong before a row is read fails here."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from ..spec import RunSpec, TransformSpec
from ..spec.source import SpecialsInText
from ..wire.errors import SpecError
from ..wire.schemas import MediaKind
from .chat_template import CHATML, ChatTemplate
from .document import DocumentRule
from .function import load_function
from .media import MediaColumns, MediaRule
from .media_tokens import media_tokens
from .readers import (
    chat_reader,
    function_reader,
    ids_reader,
    media_reader,
    mixed_chat_reader,
    mixed_text_reader,
    text_reader,
)
from .tokenizer import TokenizerFile, open_tokenizer
from .transform import Reader, Transform

FORMAT = 2
"""Goes into every fingerprint; raised when the same spec comes to yield other tokens."""


def build_transform(run: RunSpec, source: str) -> Transform:
    """Open what a source's transform needs: tokenizer, template, function.

    Args:
        run: With absolute paths, as `load_run_spec` returns it.
        source: Name of one of its sources.

    Raises:
        SpecError: A file is missing or of another kind, a special token or a function is unknown, or vocab_size does
            not fit; names source, field, rule and value.
    """
    return _Builder(run, source).build()


class _Builder:
    def __init__(self, run: RunSpec, source: str) -> None:
        self._run, self._source = run, source
        self._spec: TransformSpec = run.sources[source].transform
        self._path = f"sources.{source}.transform"
        self._keeps_specials_out = self._spec.specials_in_text is SpecialsInText.TEXT
        # Documents are encoded by a tokenizer that knows no special tokens, chats' templates need one that does.
        is_chat = self._spec.messages is not None
        self._tokenizer = self._open_tokenizer(specials_as_text=self._keeps_specials_out and not is_chat)
        self._plain = self._open_tokenizer(specials_as_text=True) if self._keeps_specials_out and is_chat else None
        self._vocab_size = self._check_vocab_size()
        self._template_source = self._read_template()
        self._columns = MediaColumns.of_spec(self._spec)
        self._media = self._open_media()

    def build(self) -> Transform:
        rule = self._rule(bos=self._special("bos"), eos=self._special("eos"))
        # Ids that come as ids are whole documents already: only a token that is named by its text is put around them.
        ids_rule = self._rule(bos=self._special("bos", by_text=True), eos=self._special("eos", by_text=True))
        return Transform(
            source=self._source,
            fingerprint=self._fingerprint(rule, ids_rule),
            vocab_size=self._vocab_size,
            tokenizer=self._tokenizer,
            plain=self._plain,
            read=self._reader(),
            rule=rule,
            ids_rule=ids_rule,
            media=self._media,
        )

    def _fault(self, field: str, text: str) -> SpecError:
        return SpecError(f"{field}: {text}", field=field)

    def _open_tokenizer(self, *, specials_as_text: bool) -> TokenizerFile | None:
        spec = self._spec
        path = spec.tokenizer or self._run.tokenizer
        if path is not None:
            field = f"{self._path}.tokenizer" if spec.tokenizer else "tokenizer"
            return open_tokenizer(path, field=field, specials_as_text=specials_as_text)
        if spec.text is not None or spec.messages is not None:
            raise self._fault(
                f"{self._path}.tokenizer", "must name a tokenizer.json (or the run's tokenizer), got none"
            )
        return None

    def _check_vocab_size(self) -> int:
        declared, opened = self._run.vocab_size, self._tokenizer
        if declared is None and opened is None:
            raise self._fault("vocab_size", f"must be given: source {self._source!r} has no tokenizer to tell it")
        if declared is not None and opened is not None and declared < opened.vocab_size:
            rule = f"must be at least {opened.vocab_size}, the size of {opened.path}, for source {self._source!r}"
            raise self._fault("vocab_size", f"{rule}, got {declared}")
        return declared if declared is not None else opened.vocab_size  # type: ignore[union-attr]

    def _special(self, kind: str, *, by_text: bool = False) -> int | None:
        """Id of the begin or end token that the spec asks for; None for none."""
        value: str | bool = getattr(self._spec, kind)
        if value is False or (value is True and (by_text or self._tokenizer is None)):
            return None
        field = f"{self._path}.{kind}"
        if self._tokenizer is None:
            raise self._fault(field, f"needs a tokenizer that knows the token, got {value!r}")
        text = self._tokenizer.own_tokens.get(kind) if value is True else value
        if text is None:
            advice = f"name the token's text, or give {kind}: false"
            raise self._fault(field, f"{self._tokenizer.path} names no {kind} token of its own; {advice}")
        found = self._tokenizer.token_id(str(text))
        if found is None:
            raise self._fault(field, f"must be a token of {self._tokenizer.path}, got {text!r}")
        return found

    def _rule(self, *, bos: int | None, eos: int | None) -> DocumentRule:
        spec, num_special = self._spec, (bos is not None) + (eos is not None)
        if spec.max_tokens is not None and spec.max_tokens < max(spec.min_tokens, num_special + 1):
            rule = f"must be at least min_tokens {spec.min_tokens} and hold a token beside {num_special} special ones"
            raise self._fault(f"{self._path}.max_tokens", f"{rule}, got {spec.max_tokens}")
        return DocumentRule(bos=bos, eos=eos, max_tokens=spec.max_tokens, min_tokens=spec.min_tokens)

    def _read_template(self) -> str | None:
        spec, field = self._spec, f"{self._path}.chat_template"
        if spec.messages is None:
            return None
        if spec.chat_template is None or not spec.is_template_file:
            return spec.chat_template or CHATML
        try:
            return Path(spec.chat_template).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise self._fault(field, f"must be a readable file, got {spec.chat_template!r}: {reason}") from error

    def _open_media(self) -> MediaRule | None:
        """Chats may hold media that no column names: they get a rule wherever the run has one."""
        spec, media = self._spec, self._run.media
        has_sections = media.vision is not None or media.audio is not None
        if not spec.has_media and not (spec.messages is not None and has_sections):
            return None
        tokens = media_tokens(
            media,
            self._tokenizer,
            self._vocab_size,
            needed=set(self._columns.paths),
            may_have_others=spec.messages is not None,
        )
        return MediaRule.of_spec(media, tokens)

    def _reader(self) -> Reader:
        spec = self._spec
        if spec.text is not None:
            return mixed_text_reader(spec.text, self._columns) if self._media else text_reader(spec.text)
        if spec.messages is not None:
            if self._media:
                return mixed_chat_reader(spec.messages, self._template(), self._columns)
            return chat_reader(spec.messages, self._template())
        if spec.has_media:
            return media_reader(self._columns)
        if spec.tokens is not None:
            return ids_reader(spec.tokens, self._vocab_size)
        function = load_function(str(spec.function), field=f"{self._path}.function")
        return function_reader(function, self._vocab_size, has_tokenizer=self._tokenizer is not None)

    def _template(self) -> ChatTemplate:
        own = self._tokenizer.own_tokens if self._tokenizer is not None else {}
        special_tokens = {f"{kind}_token": text for kind, text in own.items()}
        field = f"{self._path}.chat_template"
        control_texts = self._plain.special_tokens if self._plain is not None else ()
        return ChatTemplate(
            str(self._template_source), special_tokens=special_tokens, field=field, control_texts=control_texts
        )

    def _fingerprint(self, rule: DocumentRule, ids_rule: DocumentRule) -> str:
        """Over contents, never paths: the same bytes elsewhere are the same transform."""
        spec = self._spec
        settings: dict[str, Any] = {
            "format": FORMAT,
            "read": [spec.text, spec.messages, spec.tokens, spec.function],
            "specials_in_text": spec.specials_in_text,
            "special": [rule.bos, rule.eos, ids_rule.bos, ids_rule.eos],
            "length": [rule.max_tokens, rule.min_tokens],
            "vocab_size": self._vocab_size,
            "tokenizer": self._tokenizer.digest if self._tokenizer is not None else None,
            "own_tokens": self._tokenizer.own_tokens if self._tokenizer is not None and spec.messages else None,
            "template": self._template_source,
        }
        if self._media is not None:
            settings["media"] = self._media_settings()
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()

    def _media_settings(self) -> dict[str, Any]:
        """What decides pixels, audio and their tokens, of the kinds that the source may have."""
        assert self._media is not None, "only asked for where there are media"
        kinds = set(self._media.tokens)
        media = self._run.media.model_dump(mode="json")
        sections = {"vision": kinds & {MediaKind.IMAGE, MediaKind.VIDEO}, "audio": kinds & {MediaKind.AUDIO}}
        tokens = {kind.name: [own.placeholder, own.start, own.end] for kind, own in self._media.tokens.items()}
        return {
            "columns": {kind.name: list(paths) for kind, paths in self._columns.paths.items()},
            "limits": [media["max_bytes"], media["max_decode_pixels"]],
            "sections": {name: media[name] for name, used in sections.items() if used},
            "tokens": tokens,
        }
