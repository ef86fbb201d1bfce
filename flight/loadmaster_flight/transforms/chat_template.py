"""Jinja chat templates, as transformers writes them, rendered with the spans that count as targets.

A template marks what the assistant says by `{% generation %}` ... `{% endgeneration %}`. One without such blocks is
rendered turn by turn: an assistant's turn is what the text gains over the text before it with its generation prompt.

# k = spans of one chat
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ..wire.errors import SpecError
from .rendered import RenderedChat
from .special_text import ContentMarks, Message

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message.role + '\n' }}"
    "{% if message.role == 'assistant' %}"
    "{% generation %}{{ (message.content or '') + '<|im_end|>' }}{% endgeneration %}"
    "{% else %}{{ (message.content or '') + '<|im_end|>' }}{% endif %}"
    "{{ '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""The template of a source that names none."""

ASSISTANT = "assistant"


class _GenerationBlocks(Extension):
    """Puts marks where `{% generation %}` begins and ends; they are taken out of the text again."""

    tags = {"generation"}  # noqa: RUF012  jinja2 declares it as an instance attribute

    def parse(self, parser: Parser) -> list[nodes.Node]:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        marks: Any = self.environment.globals["generation_marks"]
        return [_output(marks[0], line), *body, _output(marks[1], line)]


def _output(text: str, line: int) -> nodes.Node:
    return nodes.Output([nodes.TemplateData(text)]).set_lineno(line)


class ChatTemplate:
    """A compiled template. Any thread may render.

    Args:
        source: The template's text.
        special_tokens: `bos_token` and `eos_token`, as far as they are known, for the template to use.
        field: The spec's field it came from, for errors.
        control_texts: Texts that are to be told apart where content has them (`RenderedChat.literals`).

    Raises:
        SpecError: Not a Jinja template.
    """

    def __init__(
        self, source: str, *, special_tokens: Mapping[str, str], field: str, control_texts: Collection[str] = ()
    ) -> None:
        # Nobody can put these marks into a message: they are drawn at random and never leave the process.
        nonce = secrets.token_hex(16)
        self._content = ContentMarks(control_texts)
        self._marks = (f"\ufdd0{nonce}", f"\ufdd1{nonce}")
        environment = _environment(self._marks)
        try:
            self._template = environment.from_string(source, globals=dict(special_tokens))
            tree = environment.parse(source)
        except jinja2.TemplateSyntaxError as error:
            raise SpecError(
                f"{field}: not a Jinja template, line {error.lineno}: {error.message}", field=field
            ) from error
        data = "".join(node.data for node in tree.find_all(nodes.TemplateData))
        self.has_generation_blocks = self._marks[0] in data

    def render(self, messages: Sequence[Message]) -> RenderedChat:
        """Render a chat.

        Raises:
            ValueError: Without generation blocks, a turn changes the text before it, so that no span can be told.
            Exception: Whatever the template raises.
        """
        messages = self._content.put(messages)
        if self.has_generation_blocks:
            return self._content.take(self._split_at_marks(self._render(messages)))
        return self._content.take(self._render_by_turns(messages))

    def _render(self, messages: Sequence[Message], *, prompt: bool = False) -> str:
        return self._template.render(messages=list(messages), add_generation_prompt=prompt, tools=None, documents=None)

    def _split_at_marks(self, marked: str) -> RenderedChat:
        parts = re.split("|".join(map(re.escape, self._marks)), marked)
        ends = [0]
        for part in parts:
            ends.append(ends[-1] + len(part))
        # parts alternate: outside, inside, outside, ...
        spans = tuple((ends[i], ends[i + 1]) for i in range(1, len(parts), 2) if parts[i])
        return RenderedChat(text="".join(parts), spans=spans)

    def _render_by_turns(self, messages: Sequence[Message]) -> RenderedChat:
        text = self._render(messages)
        spans = []
        for index, message in enumerate(messages):
            if message.get("role") == ASSISTANT:
                before = self._render(messages[:index], prompt=True)
                after = self._render(messages[: index + 1])
                if not (after.startswith(before) and text.startswith(after)):
                    raise ValueError(f"turn {index} changes the text before it; mark turns with generation blocks")
                spans.append((len(before), len(after)))
        return RenderedChat(text=text, spans=tuple(spans))


def _environment(marks: tuple[str, str]) -> ImmutableSandboxedEnvironment:
    """Set up as transformers does; `strftime_now` is left undefined, so that tokens never depend on the clock."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _GenerationBlocks]
    )
    environment.globals |= {"raise_exception": _raise, "generation_marks": marks}
    environment.filters["tojson"] = _to_json
    return environment


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)


def _to_json(value: object, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)
