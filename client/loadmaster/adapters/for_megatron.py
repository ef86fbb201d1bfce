"""Megatron-LM: a batch of one packed sequence, cut for cp and pp already, and what `PackedSeqParams` is made of."""

from __future__ import annotations

from typing import Any

from ..batch import Microbatch
from .fields import as_float32, as_int32, as_int64


def megatron(microbatch: Microbatch) -> dict[str, Any]:
    """What `get_batch` has after its slicing for tp, cp and pp: do not slice it again.

    Documents are padded before they are packed, and boundaries are those of the padded documents for both names:
    with causal attention, padding behind a document cannot reach its tokens, and its loss is masked. So
    `pad_between_seqs` is False.

    Returns:
        tokens: Shape (1, T), int64; None on a stage that gets none.
        labels: Shape (1, T), int64, shifted already, -100 where there is no loss; None on a stage that gets none.
        loss_mask: Shape (1, T), float32; None like labels.
        position_ids: Shape (1, T), int64, restarting in each document, of the slice's tokens.
        cu_seqlens, cu_seqlens_padded: Shape (1, E), int32, of the whole microbatch; one tensor.
        max_seqlen: Shape (1,), int32, on the host: `int(max_seqlen[0])` costs no synchronisation.
    """
    boundaries = as_int32(microbatch.cu_seqlens).unsqueeze(0)
    mask = microbatch.loss_mask
    return {
        "tokens": None if microbatch.tokens is None else as_int64(microbatch.tokens).unsqueeze(0),
        "labels": None if microbatch.labels is None else as_int64(microbatch.labels).unsqueeze(0),
        "loss_mask": None if mask is None else as_float32(mask).unsqueeze(0),
        "position_ids": as_int64(microbatch.position_ids).unsqueeze(0),
        "cu_seqlens": boundaries,
        "cu_seqlens_padded": boundaries,
        "max_seqlen": as_int32([microbatch.max_seqlen]),
    }
