"""Hugging Face transformers: one packed sequence, with the keyword names of its flash-attention path."""

from __future__ import annotations

from typing import Any

from loadmaster_flight.wire.schemas import IGNORE_INDEX

from ..batch import Microbatch
from .fields import as_int32, as_int64, refuse_cp, required


def transformers(microbatch: Microbatch, *, seq_idx: bool = False) -> dict[str, Any]:
    """Keyword arguments of a causal language model's `forward`, with `use_cache=False` beside them.

    Flash attention takes document boundaries from `cu_seq_lens_*` and `max_length_*` (what `DataCollatorWithFlattening`
    returns), sdpa and eager attention from `position_ids` (there must be no attention_mask). Pass
    `num_items_in_batch=batch.global_valid_tokens` too, so that the loss is a sum over that and not a mean.

    Args:
        microbatch: A whole one: cp 1, a stage with tokens and labels.
        seq_idx: Number the documents too: some Mamba layers (Zamba's) know of documents by nothing else. Attention
            needs none.

    Returns:
        input_ids, position_ids: Shape (1, T), int64.
        labels: Shape (1, T), int64, not shifted: a label stands at its own token; the first token of a document has
            -100 (the last label of a piece of a cut sample stands there where no padding lies between).
        shift_labels: Shape (1, T), int64, shifted: what the model's loss uses if it is there. It loses nothing, where
            `labels` has no place for the last label of a piece that ends with the microbatch.
        cu_seq_lens_q, cu_seq_lens_k: Shape (E,), int32; one tensor.
        max_length_q, max_length_k: int.
        seq_idx: Shape (1, T), int32, from 0; only where asked for.

    Raises:
        MeshError: The microbatch is cut for cp.
        BadRequestError: This pipeline stage gets no tokens or no labels.
    """
    refuse_cp(microbatch, "transformers", "shard its output, or give those ranks to dp or tp")
    shifted = as_int64(required(microbatch, "labels", "transformers"))
    labels = shifted.roll(1)
    labels[0] = IGNORE_INDEX
    boundaries = as_int32(microbatch.cu_seqlens)
    numbers = {"seq_idx": _segment_numbers(boundaries).unsqueeze(0)} if seq_idx else {}
    return numbers | {
        "input_ids": as_int64(required(microbatch, "tokens", "transformers")).unsqueeze(0),
        "position_ids": as_int64(microbatch.position_ids).unsqueeze(0),
        "labels": labels.unsqueeze(0),
        "shift_labels": shifted.unsqueeze(0),
        "cu_seq_lens_q": boundaries,
        "cu_seq_lens_k": boundaries,
        "max_length_q": microbatch.max_seqlen,
        "max_length_k": microbatch.max_seqlen,
    }


def _segment_numbers(boundaries_E: Any) -> Any:
    """Shape (T,), int32: which segment each token is in."""
    lengths = boundaries_E.diff()
    return as_int32(range(len(lengths))).repeat_interleave(lengths)
