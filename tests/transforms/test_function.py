from __future__ import annotations

import numpy as np
import pytest

from loadmaster_flight.sources.blocks import RowFault
from loadmaster_flight.wire.errors import SpecError, UnavailableError
from loadmaster_flight.wire.schemas import Verdict

from .conftest import ListBlock

MODULE = """
calls = []
class Label:
    pass
def make(row):
    return row["make"]()
def flaky(row):
    calls.append(row)
    if len(calls) == 1:
        raise ValueError("only once")
    return "fine"
not_callable = 3
"""


@pytest.fixture
def function(tmp_path, monkeypatch):
    """Writes a module of user functions into the working directory and returns the dotted name of one."""
    name = f"user_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    return lambda attribute: f"{name}:{attribute}"


def run(build, name, *makers, **options):
    rows = [maker if isinstance(maker, RowFault) else {"make": maker} for maker in makers]
    return build(function=name, **options).measure(ListBlock(rows), np.arange(len(rows)))


def raiser(error):
    def make():
        raise error

    return make


def test_function_when_it_returns_text_then_it_is_encoded(build, measure, function):
    got = run(build, function("make"), lambda: "the hold")
    assert got.tokens.tolist() == measure("the hold").tokens.tolist()


def test_function_when_it_returns_ids_then_they_pass_through(build, function):
    assert run(build, function("make"), lambda: [5, 6, 7]).tokens.tolist() == [5, 6, 7]


@pytest.mark.parametrize(
    ("maker", "verdict", "reason"),
    [
        (lambda: None, Verdict.SKIPPED, "left out by the function"),
        (lambda: "", Verdict.SKIPPED, "empty text"),
        (list, Verdict.SKIPPED, "empty tokens"),
        (dict, Verdict.BAD, "function must return str, list of int or None, got dict"),
        (lambda: [10**6], Verdict.BAD, "token id 1000000 is outside [0, 320)"),
        (raiser(ValueError("no\n title")), Verdict.BAD, "ValueError: no title"),
        (raiser(KeyError("title")), Verdict.BAD, "KeyError: 'title'"),
        (raiser(ZeroDivisionError()), Verdict.BAD, "ZeroDivisionError"),
        (raiser(ValueError("at 0x7f00aa11 it broke")), Verdict.BAD, "ValueError: at 0x.. it broke"),
        (RowFault(reason="not JSON"), Verdict.BAD, "not JSON"),
    ],
)
def test_function_when_a_row_cannot_be_used_then_verdict_and_reason_say_why(build, function, maker, verdict, reason):
    got = run(build, function("make"), maker, lambda: [1])
    assert got.verdict.tolist() == [verdict, Verdict.OK]
    assert got.reason[0] == reason


def test_function_when_it_fails_once_then_the_row_is_good(build, function):
    assert run(build, function("flaky"), lambda: None).reason == [None]


@pytest.mark.parametrize("error", [OSError("disk"), TimeoutError("slow"), MemoryError()])
def test_function_when_the_machine_fails_then_no_verdict_but_a_retryable_error(build, function, error):
    with pytest.raises(UnavailableError, match=f"source web: its transform failed: {type(error).__name__}"):
        run(build, function("make"), raiser(error))


@pytest.mark.parametrize(
    ("attribute", "rule"),
    [("nothing", "cannot be imported: AttributeError"), ("not_callable", "must be callable, got int")],
)
def test_function_when_it_is_not_there_then_spec_error_names_field(build, function, attribute, rule):
    with pytest.raises(SpecError, match=f"sources.web.transform.function: .*{rule}"):
        build(function=function(attribute))


def test_function_when_the_module_is_unknown_or_the_name_odd_then_spec_error(build):
    with pytest.raises(SpecError, match="'nowhere_x:f' cannot be imported: ModuleNotFoundError"):
        build(function="nowhere_x:f")
    with pytest.raises(SpecError, match=r"must look like package.module:callable, got 'json.loads'"):
        build(function="json.loads")


def test_function_when_text_comes_without_a_tokenizer_then_bad(build, function):
    got = run(build, function("make"), lambda: "text", run={"tokenizer": None, "vocab_size": 10})
    assert got.reason == ["function returned text, and the source has no tokenizer"]
