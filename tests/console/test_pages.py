"""The console's pages in front of the API: what is served, how it may be kept, and what happens without a bundle."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from loadmaster_console import Bundle, ConsolePages

SCRIPT = b"console.log('loadmaster');" * 40


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small bundle as Vite would write it."""
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text("<!doctype html><title>Loadmaster</title>")
    (tmp_path / "favicon.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    (tmp_path / "manifest.json").write_text("{}")
    (tmp_path / "assets" / "index-3f2a.js").write_bytes(SCRIPT)
    (tmp_path / "assets" / "logo-77aa.png").write_bytes(b"\x89PNG")
    return tmp_path


@pytest.fixture
def served() -> Callable[[Path], TestClient]:
    """An app with one API route behind the pages of a bundle."""

    def serve(folder: Path) -> TestClient:
        app = FastAPI()

        @app.get("/api/v1/runs")
        def runs() -> list[str]:
            return []

        app.add_middleware(ConsolePages, bundle=Bundle(folder))
        return TestClient(app, base_url="http://127.0.0.1")

    return serve


@pytest.mark.parametrize("path", ["/", "/runs", "/runs/my.run/schedule?x=steps", "/sign-in", "/a/b/c"])
def test_page_for_any_address_outside_the_api_is_the_index(path: str, folder: Path, served) -> None:
    answer = served(folder).get(path)
    assert answer.status_code == 200
    assert "<title>Loadmaster</title>" in answer.text
    assert answer.headers["cache-control"] == "no-cache"


def test_page_always_carries_the_policy_that_keeps_foreign_scripts_and_frames_out(folder: Path, served) -> None:
    headers = served(folder).get("/").headers
    policy = headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe-eval" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"


def test_hashed_file_when_gzip_is_accepted_is_compressed_and_kept_for_ever(folder: Path, served) -> None:
    with served(folder).stream("GET", "/assets/index-3f2a.js", headers={"accept-encoding": "gzip"}) as answer:
        raw = b"".join(answer.iter_raw())
    assert answer.headers["content-encoding"] == "gzip"
    assert gzip.decompress(raw) == SCRIPT
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert answer.headers["content-type"] == "text/javascript; charset=utf-8"


def test_picture_when_gzip_is_accepted_is_sent_as_it_is(folder: Path, served) -> None:
    answer = served(folder).get("/assets/logo-77aa.png")
    assert answer.content == b"\x89PNG"
    assert "content-encoding" not in answer.headers
    assert answer.headers["content-type"] == "image/png"


def test_page_that_the_browser_has_is_not_sent_again_until_it_is_built_anew(folder: Path, served) -> None:
    client = served(folder)
    etag = client.get("/").headers["etag"]
    assert client.get("/runs", headers={"if-none-match": etag}).status_code == 304
    (folder / "index.html").write_text("<!doctype html><title>newer</title>")
    assert "newer" in client.get("/runs", headers={"if-none-match": etag}).text


@pytest.mark.parametrize("path", ["/assets/index-0000.js", "/robots.txt", "/manifest.json"])
def test_file_that_is_not_there_is_told_and_is_not_the_page(path: str, folder: Path, served) -> None:
    answer = served(folder).get(path)
    assert answer.status_code == 404
    assert "<title>" not in answer.text


@pytest.mark.parametrize("path", ["../secret", "assets/../../secret", "assets//index-3f2a.js", "", ".", "/etc/passwd"])
def test_bundle_for_a_path_that_leads_out_finds_nothing(path: str, folder: Path) -> None:
    (folder.parent / "secret").write_text("no")
    assert Bundle(folder).find(path) is None


def test_api_behind_the_pages_answers_as_before(folder: Path, served) -> None:
    client = served(folder)
    assert client.get("/api/v1/runs").json() == []
    assert client.get("/api/v1/nothing").json() == {"detail": "Not Found"}
    assert client.post("/runs").status_code == 404
    assert client.get("/openapi.json").json()["openapi"].startswith("3.")


def test_head_of_a_page_has_no_body(folder: Path, served) -> None:
    answer = served(folder).head("/")
    assert answer.status_code == 200
    assert answer.content == b""


def test_pages_without_a_bundle_say_how_to_build_it(tmp_path: Path, served) -> None:
    answer = served(tmp_path / "missing").get("/runs")
    assert answer.status_code == 503
    assert "make console" in answer.text
    assert served(tmp_path / "missing").get("/api/v1/runs").json() == []
