"""s3:// against a server on loopback: every format, globs, changes, and a store that is gone."""

from __future__ import annotations

import gzip
import io
import logging
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from moto.server import ThreadedMotoServer

from loadmaster_flight.sources.attempts import Patience
from loadmaster_flight.sources.blocks import RowFault
from loadmaster_flight.sources.inventory import check_unchanged
from loadmaster_flight.sources.lanes import LaneReader
from loadmaster_flight.sources.media_files import MediaFiles
from loadmaster_flight.sources.reader import SourceReader
from loadmaster_flight.spec.manifest import SourceManifest, UnitKind
from loadmaster_flight.spec.source import SourceSpec, TransformSpec
from loadmaster_flight.wire.errors import SourceError, UnavailableError
from support.energon_writer import write_energon
from support.mds_writer import write_mds

from .conftest import QUICK, tar_of

BUCKET = "cargo"
TEXTS = [f"row {i}" for i in range(40)]
KEYS = {"access_key": "key", "secret_key": "secret", "region": "us-east-1"}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(scope="module")
def bucket(endpoint: str) -> Any:
    """A boto3 client, with the bucket made."""
    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name=KEYS["region"],
        aws_access_key_id=KEYS["access_key"],
        aws_secret_access_key=KEYS["secret_key"],
    )
    client.create_bucket(Bucket=BUCKET)
    yield client
    client.close()


@pytest.fixture
def s3_spec(endpoint: str, make_spec: Callable[..., SourceSpec]) -> Callable[..., SourceSpec]:
    def make(key: str, **fields: Any) -> SourceSpec:
        options = {"endpoint_override": endpoint, **KEYS}
        return make_spec(f"s3://{BUCKET}/{key}", **{"storage_options": options, **fields})

    return make


def parquet_of(texts: list[str]) -> bytes:
    target = io.BytesIO()
    pq.write_table(pa.table({"text": texts}), target, row_group_size=7)
    return target.getvalue()


def jsonl_of(texts: list[str]) -> bytes:
    return b"".join(b'{"text": "%s"}\n' % text.encode() for text in texts)


def arrow_of(texts: list[str]) -> bytes:
    target = io.BytesIO()
    batch = pa.record_batch({"text": texts})
    with pa.ipc.new_file(target, batch.schema) as writer:
        writer.write_batch(batch)
    return target.getvalue()


def read_source(manifest: SourceManifest, spec: SourceSpec) -> list[str]:
    """The texts of the first epoch, all lanes."""
    texts: list[str] = []
    with SourceReader(manifest, spec, patience=QUICK) as reader:
        for index in range(manifest.lanes):
            lane = LaneReader(reader, manifest, 3, 0, [index, 0, 0, 0])
            while (rows := lane.next_rows(16)) is not None:
                texts += [str(value) for value in rows.block_data.column("text", rows.rows)]
    return texts


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [
        ("parquet", parquet_of),
        ("jsonl", jsonl_of),
        ("arrow", arrow_of),
        ("jsonl.gz", lambda texts: gzip.compress(jsonl_of(texts))),
        ("jsonl.zst", lambda texts: pa.compress(jsonl_of(texts), "zstd", asbytes=True)),
    ],
)
def test_source_when_on_s3_then_each_row_is_read_once(
    suffix: str,
    pack: Callable[[list[str]], bytes],
    bucket: Any,
    s3_spec: Callable[..., SourceSpec],
    freeze: Callable[..., SourceManifest],
) -> None:
    for index, part in enumerate((TEXTS[:25], TEXTS[25:])):
        bucket.put_object(Bucket=BUCKET, Key=f"{suffix}/part-{index}.{suffix}", Body=pack(part))
    spec = s3_spec(f"{suffix}/part-*.{suffix}")
    manifest = freeze(spec)
    assert [shard.uri for shard in manifest.shards] == [f"s3://cargo/{suffix}/part-{i}.{suffix}" for i in range(2)]
    assert (manifest.unit_kind is UnitKind.BLOCK) == manifest.shards[0].is_seekable
    assert sorted(read_source(manifest, spec)) == sorted(TEXTS)


def test_tar_when_on_s3_then_each_sample_is_read_once(
    bucket: Any, s3_spec: Callable[..., SourceSpec], freeze: Callable[..., SourceManifest]
) -> None:
    body = tar_of([(f"{i:02}.text", text.encode()) for i, text in enumerate(TEXTS)])
    bucket.put_object(Bucket=BUCKET, Key="tar/a.tar", Body=body)
    spec = s3_spec("tar/a.tar", block_bytes=8192)
    assert sorted(read_source(freeze(spec), spec)) == sorted(TEXTS)


def test_glob_when_it_crosses_folders_then_finds_files_sorted_by_name(
    bucket: Any, s3_spec: Callable[..., SourceSpec], freeze: Callable[..., SourceManifest]
) -> None:
    for key in ("deep/b/x.jsonl", "deep/a/y/z.jsonl", "deep/c.jsonl", "deep/d.txt"):
        bucket.put_object(Bucket=BUCKET, Key=key, Body=jsonl_of(TEXTS[:1]))
    uris = [shard.uri for shard in freeze(s3_spec("deep/**/*.jsonl")).shards]
    assert uris == [f"s3://cargo/deep/{name}" for name in ("a/y/z.jsonl", "b/x.jsonl", "c.jsonl")]


@pytest.mark.parametrize(
    ("key", "rule"),
    [("none/*.jsonl", "is a glob that matches no file"), ("none.jsonl", "names a file that does not exist")],
)
def test_freeze_when_nothing_is_there_then_the_error_names_the_uri(
    key: str, rule: str, bucket: Any, s3_spec: Callable[..., SourceSpec], freeze: Callable[..., SourceManifest]
) -> None:
    with pytest.raises(SourceError, match=rule) as caught:
        freeze(s3_spec(key))
    assert caught.value.details["uri"] == f"s3://cargo/{key}"


def test_source_when_an_object_changes_then_is_refused_by_name(
    bucket: Any, s3_spec: Callable[..., SourceSpec], freeze: Callable[..., SourceManifest]
) -> None:
    bucket.put_object(Bucket=BUCKET, Key="changed.jsonl", Body=jsonl_of(TEXTS))
    spec = s3_spec("changed.jsonl")
    manifest = freeze(spec)
    check_unchanged(manifest, spec)
    bucket.put_object(Bucket=BUCKET, Key="changed.jsonl", Body=jsonl_of(TEXTS[:-1]))
    for look in (check_unchanged, read_source):
        with pytest.raises(SourceError, match=r"s3://cargo/changed\.jsonl must not change while a run uses it"):
            look(manifest, spec)


def test_reader_when_an_object_is_gone_then_says_which_after_trying_again(
    bucket: Any, s3_spec: Callable[..., SourceSpec], freeze: Callable[..., SourceManifest]
) -> None:
    bucket.put_object(Bucket=BUCKET, Key="gone.jsonl", Body=jsonl_of(TEXTS))
    spec = s3_spec("gone.jsonl")
    manifest = freeze(spec)
    bucket.delete_object(Bucket=BUCKET, Key="gone.jsonl")
    with (
        SourceReader(manifest, spec, patience=QUICK) as reader,
        pytest.raises(UnavailableError, match=r"source src, shard 0 \(s3://cargo/gone.jsonl\) .* after 3 tries"),
    ):
        reader.read_block(0, 0)


def test_freeze_when_no_server_answers_then_the_error_names_the_uri(
    tmp_path: Path, s3_spec: Callable[..., SourceSpec], freeze: Callable[..., SourceManifest]
) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(SourceError, match=r"s3://cargo/a\.jsonl cannot be listed"):
        freeze(s3_spec("a.jsonl", storage_options={"endpoint_override": dead, **KEYS}))


def test_block_when_read_from_s3_then_permuted_rows_follow(
    bucket: Any, s3_spec: Callable[..., SourceSpec], freeze: Callable[..., SourceManifest]
) -> None:
    bucket.put_object(Bucket=BUCKET, Key="one.parquet", Body=parquet_of(TEXTS))
    spec = s3_spec("one.parquet")
    with SourceReader(freeze(spec), spec, patience=QUICK) as reader:
        assert reader.num_blocks(0) == 6
        assert reader.read_block(0, 2).column("text", np.array([6, 0])) == [TEXTS[20], TEXTS[14]]


def test_check_unchanged_when_shards_are_many_then_their_folder_is_listed_once(
    bucket: Any,
    s3_spec: Callable[..., SourceSpec],
    freeze: Callable[..., SourceManifest],
    caplog: pytest.LogCaptureFixture,
) -> None:
    for index in range(40):
        bucket.put_object(Bucket=BUCKET, Key=f"many/{index:02}.jsonl", Body=jsonl_of(TEXTS[:2]))
    spec = s3_spec("many/*.jsonl", lanes=2)
    manifest = freeze(spec)
    with caplog.at_level(logging.INFO, logger="werkzeug"):
        caplog.clear()
        check_unchanged(manifest, spec)
    assert len(caplog.messages) == 1, caplog.messages  # the server logs each request
    bucket.put_object(Bucket=BUCKET, Key="many/07.jsonl", Body=jsonl_of(TEXTS[:3]))
    with pytest.raises(SourceError, match=r"s3://cargo/many/07\.jsonl must not change while a run uses it"):
        check_unchanged(manifest, spec)
    bucket.delete_object(Bucket=BUCKET, Key="many/03.jsonl")
    with pytest.raises(SourceError, match=r"s3://cargo/many/03\.jsonl was frozen into the run and is missing now"):
        check_unchanged(manifest, spec)


def upload(bucket: Any, folder: Path, prefix: str) -> None:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            bucket.put_object(
                Bucket=BUCKET, Key=f"{prefix}/{path.relative_to(folder).as_posix()}", Body=path.read_bytes()
            )


def write_images(folder: Path) -> Path:
    (folder / "deep").mkdir(parents=True)
    lines = [f'{{"file_name": "deep/{i}.jpg", "text": "{text}"}}\n' for i, text in enumerate(TEXTS)]
    (folder / "metadata.jsonl").write_text("".join(lines))
    for i in range(len(TEXTS)):
        (folder / "deep" / f"{i}.jpg").write_bytes(b"image %d" % i)
    return folder


def write_shards(folder: Path) -> Path:
    samples = [{"text": text, "image": text.encode()} for text in TEXTS]
    return write_mds(folder, {"text": "str", "image": "jpeg"}, [samples[:30], samples[30:]])


def write_dataset(folder: Path) -> Path:
    return write_energon(folder, dataset={"field_map": {"text": "json[text]", "image": "jpg"}})


@pytest.mark.parametrize(
    ("kind", "write", "expected"),
    [
        ("folder", write_images, TEXTS),
        ("mds", write_shards, TEXTS),
        ("energon", write_dataset, [f"caption {i}" for i in range(8)]),
    ],
)
def test_folder_when_on_s3_then_each_row_is_read_once(
    kind: str,
    write: Callable[[Path], Path],
    expected: list[str],
    tmp_path: Path,
    bucket: Any,
    s3_spec: Callable[..., SourceSpec],
    freeze: Callable[..., SourceManifest],
) -> None:
    upload(bucket, write(tmp_path / "local"), f"whole-{kind}")
    spec = s3_spec(f"whole-{kind}", format=kind, transform=TransformSpec(text="text", image="image"))
    manifest = freeze(spec)
    check_unchanged(manifest, spec)
    assert sorted(read_source(manifest, spec)) == sorted(expected)


def test_media_when_on_s3_then_are_found_below_their_folder_and_nowhere_else(
    tmp_path: Path, bucket: Any, s3_spec: Callable[..., SourceSpec], freeze: Callable[..., SourceManifest]
) -> None:
    upload(bucket, write_images(tmp_path / "local"), "media/set")
    bucket.put_object(Bucket=BUCKET, Key="media/beside.jpg", Body=b"beside")
    spec = s3_spec("media/set", format="folder", transform=TransformSpec(text="text", image="image"))
    manifest = freeze(spec)
    with SourceReader(manifest, spec, patience=QUICK) as reader:
        block = reader.read_block(0, 0)
    media = MediaFiles(manifest, spec, patience=QUICK)
    values = block.column("image", np.arange(block.num_rows))
    assert [media.read(0, value, 1000) for value in values] == [b"image %d" % i for i in range(len(TEXTS))]
    assert media.read(0, f"s3://{BUCKET}/media/set/deep/7.jpg", 1000) == b"image 7"
    for elsewhere in (f"s3://{BUCKET}/media/beside.jpg", "/media/set/deep/7.jpg", "../beside.jpg"):
        assert isinstance(media.read(0, elsewhere, 1000), RowFault)
    assert media.read(0, "deep/70.jpg", 1000) == RowFault(reason="file not found: deep/70.jpg")
    assert media.read(0, "deep", 1000) == RowFault(reason="no file: deep")


def test_media_when_the_store_is_gone_then_is_no_verdict(
    tmp_path: Path,
    bucket: Any,
    endpoint: str,
    s3_spec: Callable[..., SourceSpec],
    freeze: Callable[..., SourceManifest],
) -> None:
    upload(bucket, write_images(tmp_path / "local"), "media/gone")
    spec = s3_spec("media/gone", format="folder", transform=TransformSpec(text="text", image="image"))
    manifest = freeze(spec)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    options = {**spec.storage_options, "endpoint_override": f"http://127.0.0.1:{port}", "connect_timeout": 1}
    media = MediaFiles(manifest, spec.model_copy(update={"storage_options": options}), patience=Patience(tries=1))
    with pytest.raises(UnavailableError, match=r"media file s3://cargo/media/gone/deep/0\.jpg cannot be read"):
        media.read(0, "deep/0.jpg", 1000)
