from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadmaster_server.faults import describe_faults
from loadmaster_server.runs.comparison import name_differences

TREES = st.recursive(
    st.none() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ({"a": {"b": 1}}, {"a": {"b": 2}}, "a.b: 1 -> 2"),
        ({"a": 1}, {}, "a: 1 -> nothing"),
        ({"a": [1, 2]}, {"a": [1, 2, 3]}, "a[2]: nothing -> 3"),
        ({"a": [{"b": "x"}]}, {"a": [{"b": "y"}]}, "a[0].b: 'x' -> 'y'"),
        ({str(i): i for i in range(7)}, {}, "; and 2 more"),
    ],
)
def test_differences_when_trees_differ_then_path_and_both_values(before: object, after: object, says: str) -> None:
    assert says in name_differences(before, after)


@given(TREES, TREES)
def test_differences_when_trees_are_equal_then_and_only_then_empty(before: object, after: object) -> None:
    assert name_differences(before, before) == ""
    assert (name_differences(before, after) == "") == (before == after)


def test_faults_when_many_then_eight_and_the_number_of_the_rest() -> None:
    errors = [{"loc": ("body", i), "msg": "must be small", "input": "x" * 200, "type": "t"} for i in range(10)]
    text = describe_faults(errors)
    assert text.startswith("body.0: must be small, got 'xxx")
    assert text.endswith("; and 2 more")
    assert len(text) < 1500
