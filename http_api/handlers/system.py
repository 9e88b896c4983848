"""Routes of one node, never passed on: health, metrics, the contract, and the pages for people."""

import re
from collections.abc import Iterator
from functools import cache
from html import escape
from pathlib import Path

from aiohttp import web

from ...cluster.front.writes import REFUSED_WRITES_MAX
from ...partition.api.records import RefusedWrites
from ...partition.errors import LeaderNotAvailable
from ...partition.refusal_texts import BY_CODE, BY_REASON, NO_TEXT
from ..codec import json_codec
from ..request.call import Call, json_answer
from ..request.metrics import CONTENT_TYPE

HSTS_S = 365 * 24 * 3600
"""How long a browser that has seen a page by HTTPS does not come back without it (RFC 6797)."""
ASSETS = Path(__file__).parents[1] / "assets"

_RETRY_AFTER_MS = 500
_CODE = re.compile("`([^`]*)`")


async def healthz(call: Call) -> web.StreamResponse:
    """The process runs, and so does its event loop."""
    return json_answer({"status": "ok"})


async def readyz(call: Call) -> web.StreamResponse:
    """The node can serve requests."""
    missing = "the node is stopping" if call.front.is_leaving else call.service.ready()
    if missing is not None:
        raise LeaderNotAvailable(missing, retry_after_ms=_RETRY_AFTER_MS)
    return json_answer({"status": "ok"})


async def metrics(call: Call) -> web.StreamResponse:
    """Metrics in the Prometheus text format."""
    return web.Response(body=call.context.metrics.text(), headers={"Content-Type": CONTENT_TYPE})


async def list_refused_writes(call: Call) -> web.StreamResponse:
    """The latest writes that this node's partitions refused."""
    count = call.parameters.query_integer("n", 1, REFUSED_WRITES_MAX, 100)
    return json_answer(RefusedWrites(call.service.node_id, call.front.writes.latest_refused(count)))


async def openapi(call: Call) -> web.StreamResponse:
    """The contract."""
    return web.Response(body=asset("openapi.json"), content_type="application/json")


async def console(call: Call) -> web.StreamResponse:
    """The page that shows the cluster."""
    return _page(call, asset("console.html"))


async def docs(call: Call) -> web.StreamResponse:
    """The page to try the API."""
    return _page(call, asset("docs.html"))


async def problem_docs(call: Call) -> web.StreamResponse:
    """The page to which the ``type`` of every problem leads."""
    return _page(call, _problems_page())


@cache
def asset(name: str) -> bytes:
    """A file that comes with this folder."""
    return (ASSETS / name).read_bytes()


@cache
def _problems_page() -> bytes:
    """Every problem of the contract: its title, its meaning, what to do next, and that by reason."""
    schemas = json_codec.parse(asset("openapi.json"))["components"]["schemas"]
    entries = []
    for name, schema in schemas.items():
        if name.startswith("Problem") and name != "Problem":
            example = schema["examples"][0]
            code, title, status = (escape(str(example[member])) for member in ("code", "title", "status"))
            said = [schema["description"], *_next_steps(code)]
            paragraphs = "".join(f"<p>{_html(text)}</p>" for text in said if text)
            head = f'<h2 id="{code}"><code>{code}</code> {status}</h2><p><b>{title}</b></p>'
            entries.append(head + paragraphs)
    return asset("problems.html").replace(b"<!-- problems -->", "\n".join(entries).encode())


def _next_steps(code: str) -> Iterator[str]:
    """What to do next after a refusal with this code; with several causes, after each."""
    yield BY_CODE.get(code, NO_TEXT).everywhere()
    for (of, reason), text in BY_REASON.items():
        if of == code:
            yield f"`{reason}`: {text.everywhere()}"


def _html(text: str) -> str:
    """The text, its words between backticks as code."""
    return _CODE.sub(r"<code>\1</code>", escape(text))


def _page(call: Call, html: bytes) -> web.Response:
    headers = {"Strict-Transport-Security": f"max-age={HSTS_S}"} if call.is_encrypted else None
    return web.Response(body=html, content_type="text/html", charset="utf-8", headers=headers)
