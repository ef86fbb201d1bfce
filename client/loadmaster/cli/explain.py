"""`loadmaster explain`: what a step holds, or where a sample went, and why."""

from __future__ import annotations

import argparse
import json
import textwrap
from collections.abc import Iterator, Sequence

from loadmaster_flight.wire.control import to_json
from loadmaster_flight.wire.http import PlannerClient
from loadmaster_flight.wire.ledger import PieceView, SampleView, ShareView, StepView
from loadmaster_flight.wire.tls import add_tls, tls_of

from .only_run import only_run

ABOUT = """Tell what a step holds, or every step that a sample is in: which samples, in which dp rank, microbatch and
slot, from which shard and row, and why they are there. Text is decoded by the loaders that own the samples."""
INDENT = "      "


def main(argv: Sequence[str]) -> int:
    """Print one step or one sample; 1 where the sample is in no step."""
    args = _parse(argv)
    planner = PlannerClient(args.url, timeout_s=args.timeout_s, tls=tls_of(args))
    try:
        run = args.run or only_run(planner)
        view = _sample(planner, run, args) if args.sample else _step(planner, run, args)
    finally:
        planner.close()
    if args.json:
        print(json.dumps(to_json(view)))
    else:
        print("\n".join(_sample_lines(view) if isinstance(view, SampleView) else _step_lines(view)))
    return 1 if isinstance(view, SampleView) and not view.steps else 0


def _step(planner: PlannerClient, run: str, args: argparse.Namespace) -> StepView:
    asked = {"rank": args.rank, "microbatch": args.microbatch}
    query = {name: value for name, value in asked.items() if value is not None}
    return planner.get(f"/runs/{run}/steps/{args.step}", StepView, stream=args.stream, text=int(args.text), **query)


def _sample(planner: PlannerClient, run: str, args: argparse.Namespace) -> SampleView:
    path = f"/runs/{run}/samples"
    return planner.get(path, SampleView, sample=args.sample, stream=args.stream, text=int(args.text))


def _sample_lines(view: SampleView) -> Iterator[str]:
    if view.verdict:
        yield f"{view.sample}  left out, {view.verdict}"
    if not view.steps and not view.verdict:
        yield f"{view.sample}  in none of the {view.searched} steps of {view.run}/{view.stream} that are planned"
    for step in view.steps:
        yield from _step_lines(step)


def _step_lines(view: StepView) -> Iterator[str]:
    mesh = " ".join(f"{axis} {size}" for axis, size in view.mesh.items())
    yield f"{view.run}/{view.stream} step {view.step}  {view.state}  revision {view.revision}  {mesh}"
    yield f"  {'; '.join(view.lineage)}"
    yield (
        f"  {view.num_pieces:,} pieces, {view.num_tokens:,} tokens in {view.num_bins} microbatches of "
        f"{view.seq_len:,}, {view.global_valid_tokens:,} with a loss  digest {view.digest[:16]}"
    )
    yield from (_share_line(share) for share in view.shares)
    yield from (f"  note: {note}" for note in view.notes)
    for piece in view.pieces:
        yield from _piece_lines(view, piece)


def _share_line(share: ShareView) -> str:
    credit = "" if share.credit is None else f"  credit {share.credit:+,}"
    return (
        f"  {share.source:<24} share {share.weight:7.2%}  {share.step_tokens:>10,} tokens here, "
        f"{share.placed_tokens:,} so far of {share.target_tokens:,}{credit}"
    )


def _piece_lines(step: StepView, piece: PieceView) -> Iterator[str]:
    tokens = "?" if piece.num_tokens < 0 else f"{piece.num_tokens:,}"
    is_cut = piece.first_token > 0 or (0 <= piece.num_tokens != piece.sample_tokens >= 0)
    cut = f", its tokens {piece.first_token:,} to {piece.first_token + piece.num_tokens:,}" if is_cut else ""
    of = f" of {piece.sample_tokens:,}" if is_cut and piece.sample_tokens >= 0 else ""
    yield f"    dp {piece.dp} microbatch {piece.microbatch} slot {piece.slot}  {piece.sample}  {tokens} tokens{cut}{of}"
    row = f"row {piece.row}" if piece.row >= 0 else "row not known"
    order = f"position {piece.pos} of lane {piece.lane} epoch {piece.epoch}"
    yield f"{INDENT}{piece.uri} block {piece.block} {row}, {order}"
    yield INDENT + _why(step, piece)
    if piece.encoders:
        yield f"{INDENT}images encoded by ranks {', '.join(map(str, piece.encoders))}"
    if piece.text is not None:
        yield textwrap.indent(piece.text, INDENT + "| ", lambda line: True)


def _why(step: StepView, piece: PieceView) -> str:
    if piece.drawn_at < 0:
        drawn = "drawn at a step that was not kept"
    elif piece.waited:
        drawn = f"drawn at step {piece.drawn_at}, deferred {piece.waited} steps"
    else:
        drawn = "drawn at this step"
    if piece.credit_before is not None and piece.credit_after is not None:
        drawn += f", when {piece.source} was owed {piece.credit_before:+,} tokens and then {piece.credit_after:+,}"
    verdict = "" if piece.verdict == "ok" and not piece.reason else f"; {piece.verdict}: {piece.reason}"
    return f"{drawn}, under revision {step.revision}{verdict}"


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="loadmaster explain", description=ABOUT)
    parser.add_argument("url", help="https://host:port of the planner")
    parser.add_argument("run", nargs="?", help="name of the run; by default the only one there is")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--step", type=int, help="a step")
    what.add_argument("--sample", metavar="ID", help="source/shard/block/row@epoch, as batch.sample_ids has it")
    parser.add_argument("--rank", type=int, help="only what this rank of the mesh gets")
    parser.add_argument("--microbatch", type=int, help="only this microbatch of the rank, or of each dp rank")
    parser.add_argument("--stream", default="train", help="train, or an evaluation pass")
    parser.add_argument("--text", action="store_true", help="decode the samples")
    parser.add_argument("--json", action="store_true", help="everything, as one JSON object")
    parser.add_argument("--timeout-s", type=float, default=120.0, help="deadline of each wait")
    add_tls(parser, serves=False)
    return parser.parse_args(argv)
