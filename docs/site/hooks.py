"""Hooks of mkdocs: what lies outside docs/ and is linked from there becomes part of the site.

README.md is the home page and CHANGELOG.md a page; a source file that a page links to is shown as it is.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

import metrics_reference
from mkdocs.structure.files import File, Files
from spec_reference import page, undescribed

ROOT = Path(__file__).parents[2]
PAGES = {"index.md": "README.md", "changes.md": "CHANGELOG.md"}
LINK = re.compile(r"(\]\()([^)#\s:]+)(#[^)\s]*)?(\))")
FENCE = re.compile(r"(^```.*?^```$)", re.M | re.S)
SOURCE_SUFFIX = ".source.md"
SOURCE_PAGE = "# `{path}`\n\n```{language}\n{text}\n```\n"
LANGUAGES = {".py": "python", ".yaml": "yaml", ".md": "markdown"}


def on_config(config: Any) -> Any:
    """Put pages that the navigation of mkdocs.yml does not name behind the others."""
    named = set(_leaves(config.nav))
    pages = sorted(path.relative_to(config.docs_dir).as_posix() for path in Path(config.docs_dir).rglob("*.md"))
    if more := [uri for uri in pages if uri not in named]:
        config.nav.append({"More": more})
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages; refuse a reference of the run spec that is stale."""
    if missing := undescribed():
        raise ValueError(f"fields of the run spec without a description: {', '.join(missing)}")
    for uri, content in (("reference/run-spec.md", page()), ("reference/metrics.md", metrics_reference.page())):
        files.remove(files.get_file_from_path(uri))  # type: ignore[arg-type]
        files.append(File.generated(config, uri, content=content))
    texts = {file.src_uri: file.content_string for file in files.documentation_pages()}
    for uri, name in PAGES.items():
        texts[uri] = (ROOT / name).read_text("utf-8")
        files.append(File.generated(config, uri, content=texts[uri]))
    wanted = {path for uri, text in texts.items() for path in _outside(uri, text)}
    for path in sorted(wanted - set(PAGES.values())):
        text = (ROOT / path).read_text("utf-8")
        shown = SOURCE_PAGE.format(path=path, language=LANGUAGES.get(Path(path).suffix, "text"), text=text)
        files.append(File.generated(config, _source_uri(path), content=text if path.endswith(".md") else shown))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point links at pages of the site."""
    uri = page.file.src_uri
    if uri.endswith(SOURCE_SUFFIX):
        return markdown

    def moved(match: re.Match[str]) -> str:
        target = _target(uri, match[2])
        new = posixpath.relpath(target, posixpath.dirname(uri) or ".")
        return f"{match[1]}{new}{match[3] or ''}{match[4]}"

    parts = FENCE.split(markdown)  # prose and code in turn
    return "".join(part if i % 2 else LINK.sub(moved, part) for i, part in enumerate(parts))


def _outside(uri: str, text: str) -> set[str]:
    """Paths below the root, outside docs/, that a page links to."""
    found = {_repository_path(uri, match[2]) for match in LINK.finditer(text)}
    return {path for path in found if not path.startswith(("docs/", "..")) and (ROOT / path).is_file()}


def _target(uri: str, link: str) -> str:
    """Where a link leads inside the site."""
    path = _repository_path(uri, link)
    home = {name: page_uri for page_uri, name in PAGES.items()}
    if path in home:
        return home[path]
    return path.removeprefix("docs/") if path.startswith("docs/") else _source_uri(path)


def _repository_path(uri: str, link: str) -> str:
    """A link of a page as a path below the root of the repository."""
    origin = PAGES.get(uri) or (
        uri.removeprefix("source/").removesuffix(SOURCE_SUFFIX) if _is_source(uri) else f"docs/{uri}"
    )
    return posixpath.normpath(posixpath.join(posixpath.dirname(origin), link))


def _source_uri(path: str) -> str:
    return f"source/{path}" if path.endswith(".md") else f"source/{path}{SOURCE_SUFFIX}"


def _is_source(uri: str) -> bool:
    return uri.startswith("source/")


def _leaves(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    return [leaf for part in (nav.values() if isinstance(nav, dict) else nav) for leaf in _leaves(part)]
