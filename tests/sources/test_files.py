"""Finding files: globs, braces, schemes and what is said when nothing is found."""

from __future__ import annotations

from pathlib import Path

import fsspec
import pytest

from loadmaster_flight.sources.braces import expand_braces
from loadmaster_flight.sources.files import FileStore, ObservedFile
from loadmaster_flight.wire.errors import SourceError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (
        "b.parquet",
        "a.parquet",
        "c.jsonl",
        ".hidden.parquet",
        "sub/d.parquet",
        "sub/deep/e.parquet",
        "x[1].tar",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    return tmp_path


def names(folder: Path, *uris: str) -> list[str]:
    return [entry.uri.removeprefix(f"{folder}/") for entry in FileStore({}, source="src").expand(uris, folder)]


@pytest.mark.parametrize(
    ("uris", "expected"),
    [
        (["*.parquet"], ["a.parquet", "b.parquet"]),
        (["**/*.parquet"], ["a.parquet", "b.parquet", "sub/d.parquet", "sub/deep/e.parquet"]),
        (["*/*.parquet"], ["sub/d.parquet"]),
        (["[bc].*"], ["b.parquet", "c.jsonl"]),
        (["c.jsonl", "?.parquet"], ["c.jsonl", "a.parquet", "b.parquet"]),
        (["{b,a}.parquet"], ["b.parquet", "a.parquet"]),
        (["x[1].tar"], ["x[1].tar"]),
        ([".hidden.parquet"], [".hidden.parquet"]),
    ],
)
def test_expand_when_given_patterns_then_finds_files_in_order(
    uris: list[str], expected: list[str], folder: Path
) -> None:
    assert names(folder, *uris) == expected


@pytest.mark.parametrize("form", ["{}/a.parquet", "file://{}/a.parquet"])
def test_expand_when_path_is_absolute_then_base_dir_is_not_used(form: str, folder: Path) -> None:
    entries = FileStore({}, source="src").expand((form.format(folder),), Path("elsewhere"))
    assert [entry.uri for entry in entries] == [f"{folder}/a.parquet"]


@pytest.mark.parametrize(
    ("uris", "rule"),
    [
        (["missing.parquet"], "names a file that does not exist"),
        (["missing/*.parquet"], "is a glob that matches no file"),
        (["*.csv"], "is a glob that matches no file"),
        (["sub"], "must name files, got a folder"),
        (["a.parquet", "*.parquet"], "must name each file once"),
        (["nowhere://a.parquet"], "has a scheme that cannot be opened"),
    ],
)
def test_expand_when_nothing_fits_then_the_error_names_source_field_and_uri(
    uris: list[str], rule: str, folder: Path
) -> None:
    with pytest.raises(SourceError, match=rule) as caught:
        names(folder, *uris)
    assert caught.value.details["source"] == "src"
    assert caught.value.details["field"] == "sources.src.uri"
    assert uris[-1].split("://")[0] in caught.value.details["uri"]


def test_expand_when_an_s3_option_is_unknown_then_the_error_names_it(folder: Path) -> None:
    with pytest.raises(SourceError, match=r"sources\.src\.storage_options\.endpoint is not an option of s3"):
        FileStore({"endpoint": "x"}, source="src").expand(("s3://bucket/a",), folder)


def test_store_when_scheme_is_another_one_then_fsspec_serves_it(tmp_path: Path) -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe({"/box/b.jsonl": b"{}", "/box/a.jsonl": b'{"text": "a"}'})
    store = FileStore({}, source="src")
    entries = store.expand(("memory://box/*.jsonl",), tmp_path)
    assert [entry.uri.rpartition("/")[2] for entry in entries] == ["a.jsonl", "b.jsonl"]
    with store.open(entries[0].uri) as handle:
        assert handle.read() == b'{"text": "a"}'


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("a.tar", ["a.tar"]),
        ("{08..11}.tar", ["08.tar", "09.tar", "10.tar", "11.tar"]),
        ("{8..10}", ["8", "9", "10"]),
        ("{a,b}-{0..1}", ["a-0", "a-1", "b-0", "b-1"]),
        ("{single}", ["{single}"]),
    ],
)
def test_expand_braces_when_given_a_pattern_then_names_all(pattern: str, expected: list[str]) -> None:
    assert expand_braces(pattern) == expected


def test_observed_file_when_reading_fails_then_remembers_the_error() -> None:
    class Broken:
        def read(self, size: int | None) -> bytes:
            raise OSError("the disk is gone")

        def close(self) -> None: ...

    observed = ObservedFile(Broken())
    with pytest.raises(OSError, match="the disk is gone"):
        observed.read(3)
    assert str(observed.io_error) == "the disk is gone"
