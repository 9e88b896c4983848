"""The console: a page, and the modules, styles and font that it loads, all of them from this node.

The files are served as they lie in ``assets/console``. Their addresses name the build, a digest over all of them, so a
browser caches them for good and never mixes two builds; it revalidates the page itself each time.
"""

import gzip
from functools import cache
from hashlib import sha256
from pathlib import PurePosixPath
from typing import NamedTuple

from aiohttp import web

from ...partition.errors import NotFound
from ..codec.media import takes_gzip
from ..request.call import Call
from .system import ASSETS, page_headers

FOLDER = ASSETS / "console"
PAGE = "index.html"
MEDIA_TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
    ".LICENSE": "text/plain; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".json": "application/json",
}
POLICY = {"script-src": "'self'", "style-src": "'self'", "font-src": "'self'", "img-src": "'self'"}
"""What the page may load (Content Security Policy). A record cannot be run as a script: no answer with records has a
script's media type, and every answer forbids guessing another.
"""
KEEP_S = 365 * 24 * 3600
_COMPRESSED = (".js", ".css", ".svg", ".html", ".json")


class File(NamedTuple):
    """A file as it is sent. ``gzipped`` is None for types that gzip does not make smaller."""

    media_type: str
    body: bytes
    gzipped: bytes | None


class Build(NamedTuple):
    """The console of this version; ``name`` is the digest over its files."""

    name: str
    page: File
    files: dict[str, File]


async def console(call: Call) -> web.StreamResponse:
    """The page that shows the cluster."""
    return _sent(call, build().page, page_headers(call, POLICY) | {"Cache-Control": "no-cache"})


async def console_file(call: Call) -> web.StreamResponse:
    """A file that the page loads. Raises NotFound, also for one of another build."""
    wanted = call.request.match_info
    found = build()
    name = "/".join(filter(None, (wanted.get("folder"), wanted["file"])))
    if wanted["build"] != found.name or name not in found.files:
        raise NotFound("no such file of the console", what="route")
    return _sent(call, found.files[name], {"Cache-Control": f"public, max-age={KEEP_S}, immutable"})


@cache
def build() -> Build:
    """Every file of the console, read once."""
    paths = sorted(path for path in FOLDER.rglob("*") if path.is_file())
    bodies = {path.relative_to(FOLDER).as_posix(): path.read_bytes() for path in paths}
    digest = sha256()
    for name, body in bodies.items():
        digest.update(b"%s\0%d\0%s" % (name.encode(), len(body), body))
    build_name = digest.hexdigest()[:16]
    # So the browser requests all modules at once, and not each only when the module that imports it has come.
    modules = [f'<link rel="modulepreload" href="/console/BUILD/{name}">' for name in bodies if name.endswith(".js")]
    page = bodies.pop(PAGE).replace(b"<!-- modules -->", "\n".join(modules).encode())
    page = page.replace(b"BUILD", build_name.encode())
    return Build(build_name, _file(PAGE, page), {name: _file(name, body) for name, body in bodies.items()})


def _file(name: str, body: bytes) -> File:
    suffix = PurePosixPath(name).suffix
    return File(MEDIA_TYPES[suffix], body, gzip.compress(body, mtime=0) if suffix in _COMPRESSED else None)


def _sent(call: Call, file: File, headers: dict[str, str]) -> web.Response:
    answer = web.Response(
        body=file.body, headers=headers | {"Content-Type": file.media_type, "Vary": "Accept-Encoding"}
    )
    if file.gzipped is not None and takes_gzip(call.request.headers.get("Accept-Encoding", "")):
        answer.headers["Content-Encoding"] = "gzip"
        answer.body = file.gzipped
    return answer
