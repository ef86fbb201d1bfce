"""Serves the console in front of the planner's API: every address outside /api is a page or a file of the bundle."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from .bundle import HASHED, INDEX, Bundle, BundledFile

CONTENT_SECURITY_POLICY = "; ".join(
    [
        "default-src 'self'",
        "style-src 'self' 'unsafe-inline'",  # Mantine and React Flow set styles on elements
        "img-src 'self' data: blob:",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    ]
)
_SAFETY = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
}
_OF_THE_API = ("/api/", "/openapi.json")
_NOT_BUILT = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Loadmaster</title>
<body style="font:16px/1.5 system-ui,sans-serif;max-width:36em;margin:4em auto;padding:0 1em">
<h1>The console is not built</h1>
<p>This planner runs from a checkout without the bundle of the web console. Build it with</p>
<pre>make console</pre>
<p>and load this page again; the planner need not be restarted. The API below <code>/api/v1</code> answers as it is.</p>
"""


class ConsolePages:
    """ASGI middleware: GET and HEAD outside the API are answered from the bundle, all else goes on to `app`.

    Files with hashed names may be kept for ever; the page that names them is asked for each time. Addresses that are no
    file give the page, which knows what to show. Without a bundle a plain page says how to build it.

    Args:
        app: What answers the API.
        bundle: The built bundle.
    """

    def __init__(self, app: ASGIApp, bundle: Bundle | None = None) -> None:
        self._app = app
        self._bundle = bundle or Bundle()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http" or scope["method"] not in {"GET", "HEAD"} or _is_api(scope["path"]):
            await self._app(scope, receive, send)
            return
        answer = await run_in_threadpool(self._answer, scope["path"].lstrip("/"), Headers(scope=scope))
        await answer(scope, receive, send)

    def _answer(self, path: str, headers: Headers) -> Response:
        if not self._bundle.is_built:
            return HTMLResponse(_NOT_BUILT, status_code=503, headers={**_SAFETY, "cache-control": "no-store"})
        found = self._bundle.find(path)
        if found is None and _names_a_file(path):
            return PlainTextResponse("no such file in this bundle", status_code=404, headers=_SAFETY)
        found = found or self._bundle.find(INDEX)
        assert found is not None, "index.html is there when the bundle is built"
        return _send(found, headers)


def _is_api(path: str) -> bool:
    return path in ("/api", "/metrics") or path.startswith(_OF_THE_API)


def _names_a_file(path: str) -> bool:
    """Whether a path that is not there must be told so: a page would be taken for a broken script."""
    return path.startswith(HASHED) or ("/" not in path and "." in path)


def _send(found: BundledFile, headers: Headers) -> Response:
    cache = "public, max-age=31536000, immutable" if found.is_immutable else "no-cache"
    told = {**_SAFETY, "cache-control": cache, "etag": found.etag, "vary": "accept-encoding"}
    if found.etag in headers.get("if-none-match", ""):
        return Response(status_code=304, headers=told)
    if found.gzipped and "gzip" in headers.get("accept-encoding", ""):
        told["content-encoding"] = "gzip"
        return Response(found.gzipped, headers=told, media_type=found.content_type)
    return Response(found.body, headers=told, media_type=found.content_type)
