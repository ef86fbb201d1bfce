"""Train the byte-level BPE of the example run on its own extracts and write examples/data/tokenizer.json.

    python examples/train_tokenizer.py [--vocab-size 4096]

`<pad>` has id 0, so padding tokens of a batch (which are 0) read as `<pad>`. The held-out chapters are left out.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

DATA = Path(__file__).with_name("data")
SPECIAL_TOKENS = ["<pad>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"]
MEDIA_TOKENS = ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]


def main(argv: Sequence[str] | None = None) -> int:
    """Train and save; prints the size of the vocabulary and how well it compresses."""
    parser = argparse.ArgumentParser(description="Train the tokenizer of the example run.")
    parser.add_argument("--vocab-size", type=int, default=4096)
    parser.add_argument("--out", type=Path, default=DATA / "tokenizer.json")
    options = parser.parse_args(argv)
    tokenizer = train(list(texts(DATA)), options.vocab_size)
    tokenizer.save(str(options.out), pretty=False)
    num_bytes = sum(len(text.encode()) for text in texts(DATA))
    num_tokens = sum(len(encoding.ids) for encoding in tokenizer.encode_batch(list(texts(DATA))))
    print(f"{tokenizer.get_vocab_size()} tokens, {num_bytes / num_tokens:.2f} bytes a token, {num_tokens} in all")
    return 0


def train(samples: Sequence[str], vocab_size: int) -> Tokenizer:
    """A byte-level BPE without any unknown token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=SPECIAL_TOKENS + MEDIA_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(samples, trainer)
    return tokenizer


def texts(data: Path) -> Iterator[str]:
    """Every text that the example run trains on, in the order of the file names."""
    for path in sorted(data.glob("novel/*.parquet")):
        yield from (doc["text"] for doc in pq.read_table(path)["doc"].to_pylist())
    for path in sorted(data.glob("speeches/*.jsonl.gz")):
        yield from (json.loads(line)["text"] for line in gzip.decompress(path.read_bytes()).splitlines())
    for path in sorted(data.glob("code/*.tar")):
        yield from tar_texts(path)
    for path in sorted(data.glob("questions/*.jsonl")):
        chats = (json.loads(line)["messages"] for line in path.read_text("utf-8").splitlines())
        yield from ("\n".join(turn["content"] for turn in chat) for chat in chats)
    for path in sorted(data.glob("manual/*.arrow")):
        yield from pa.ipc.open_file(path).read_all()["text"].to_pylist()
    for path in sorted(data.glob("pictures/*.tar")):
        yield from tar_texts(path)
    for line in (data / "clips/metadata.jsonl").read_text("utf-8").splitlines():
        yield json.loads(line)["caption"]


def tar_texts(path: Path) -> Iterator[str]:
    with tarfile.open(path) as tar:
        for member in tar:
            if member.name.endswith(".txt") and (file := tar.extractfile(member)) is not None:
                yield file.read().decode("utf-8")


if __name__ == "__main__":
    sys.exit(main())
