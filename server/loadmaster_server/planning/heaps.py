"""Two binary heaps of sources in arrays, as functions that numba compiles; each returns the new number of entries.

# S = sources
"""

from __future__ import annotations

from .columns import Int64Array
from .compiled import compiled


@compiled
def is_due_earlier(a: int, b: int, due_S: Int64Array) -> bool:
    """Ties go to the lower source."""
    return bool(due_S[a] < due_S[b] or (due_S[a] == due_S[b] and a < b))


@compiled
def push_due(heap_S: Int64Array, num: int, source: int, due_S: Int64Array) -> int:
    """Add a source to those that wait for their instant."""
    at = num
    while at > 0 and is_due_earlier(source, heap_S[(at - 1) // 2], due_S):
        heap_S[at] = heap_S[(at - 1) // 2]
        at = (at - 1) // 2
    heap_S[at] = source
    return num + 1


@compiled
def pop_due(heap_S: Int64Array, num: int, due_S: Int64Array) -> int:
    """Drop the first source."""
    num -= 1
    source, at = heap_S[num], 0
    while 2 * at + 1 < num:
        child = 2 * at + 1
        if child + 1 < num and is_due_earlier(heap_S[child + 1], heap_S[child], due_S):
            child += 1
        if not is_due_earlier(heap_S[child], source, due_S):
            break
        heap_S[at] = heap_S[child]
        at = child
    heap_S[at] = source
    return num


@compiled
def is_paid_earlier(a: int, b: int, whole_S: Int64Array, rest_S: Int64Array, weight_S: Int64Array) -> bool:
    """Compare whole + rest / weight exactly: rests are smaller than weights, so products are below 2**60."""
    if whole_S[a] != whole_S[b]:
        return bool(whole_S[a] < whole_S[b])
    left, right = rest_S[a] * weight_S[b], rest_S[b] * weight_S[a]
    return bool(left < right or (left == right and a < b))


@compiled
def push_ready(
    heap_S: Int64Array, num: int, source: int, whole_S: Int64Array, rest_S: Int64Array, weight_S: Int64Array
) -> int:
    """Add a source to those that may be drawn."""
    at = num
    while at > 0 and is_paid_earlier(source, heap_S[(at - 1) // 2], whole_S, rest_S, weight_S):
        heap_S[at] = heap_S[(at - 1) // 2]
        at = (at - 1) // 2
    heap_S[at] = source
    return num + 1


@compiled
def pop_ready(heap_S: Int64Array, num: int, whole_S: Int64Array, rest_S: Int64Array, weight_S: Int64Array) -> int:
    """Drop the first source."""
    num -= 1
    source, at = heap_S[num], 0
    while 2 * at + 1 < num:
        child = 2 * at + 1
        if child + 1 < num and is_paid_earlier(heap_S[child + 1], heap_S[child], whole_S, rest_S, weight_S):
            child += 1
        if not is_paid_earlier(heap_S[child], source, whole_S, rest_S, weight_S):
            break
        heap_S[at] = heap_S[child]
        at = child
    heap_S[at] = source
    return num
