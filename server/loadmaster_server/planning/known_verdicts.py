"""Verdicts that stand: what was left out once is left out again, whatever it measures now."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .rows import BLOCK, EPOCH, ROW, SHARD, TOKENS, VALID, VERDICT, RowTable


class Judgement(NamedTuple):
    """A verdict, its reason, and the epoch from which on it holds."""

    epoch: int
    verdict: int
    reason: str


class KnownVerdicts:
    """The journal of one stream's measured rows, by sample. Not thread-safe.

    Only content is journaled here: that a sample is longer than a step allows is found anew each time.
    """

    def __init__(self) -> None:
        self._rows: dict[int, dict[tuple[int, int], dict[int, Judgement]]] = {}
        self._shared: dict[Judgement, Judgement] = {}

    def add(self, source: int, shard: int, block: int, row: int, judgement: Judgement) -> None:
        """Let a verdict stand; the first one of a sample does."""
        of_block = self._rows.setdefault(source, {}).setdefault((shard, block), {})
        of_block.setdefault(row, self._shared.setdefault(judgement, judgement))

    def add_rows(self, source: int, rows: RowTable) -> None:
        """Let the verdicts of rows that were passed over stand, but for those that have tokens: they are too long."""
        for index in np.flatnonzero(rows.values_NF[:, TOKENS] == 0).tolist():
            epoch, shard, block, row, verdict = rows.values_NF[index, [EPOCH, SHARD, BLOCK, ROW, VERDICT]].tolist()
            self.add(source, shard, block, row, Judgement(epoch, verdict, str(rows.reasons_N[index])))

    def apply(self, source: int, table: RowTable) -> RowTable:
        """The measured rows, with the verdicts that stand in place of new ones."""
        found = self._find(source, table)
        if not found:
            return table
        values_NF, spans_N, reasons_N = table.values_NF.copy(), table.spans_N.copy(), table.reasons_N.copy()
        for index, judgement in found.items():
            values_NF[index, [VERDICT, TOKENS, VALID]] = (judgement.verdict, 0, 0)
            spans_N[index], reasons_N[index] = None, judgement.reason
        patches = table.patches.without(np.array(list(found), np.int64))
        return RowTable(values_NF=values_NF, spans_N=spans_N, reasons_N=reasons_N, patches=patches)

    def _find(self, source: int, table: RowTable) -> dict[int, Judgement]:
        """Index in the table -> the verdict that stands."""
        found: dict[int, Judgement] = {}
        shard_N, block_N = table.values_NF[:, SHARD], table.values_NF[:, BLOCK]
        known = self._rows.get(source, {})
        here = set(zip(shard_N.tolist(), block_N.tolist(), strict=True)) if known else set()
        for shard, block in here & known.keys():
            of_block = known[shard, block]
            for index in np.flatnonzero((shard_N == shard) & (block_N == block)).tolist():
                judgement = of_block.get(int(table.values_NF[index, ROW]))
                if judgement is not None and judgement.epoch <= table.values_NF[index, EPOCH]:
                    found[index] = judgement
        return found
