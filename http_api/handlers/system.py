"""Routes of one node, never passed on: health, metrics, the contract, and the pages for people."""

from functools import cache
from html import escape
from pathlib import Path

from aiohttp import web

from ..partition.errors import LeaderNotAvailable
from . import wire
from .call import Call, json_answer
from .metrics import CONTENT_TYPE
from .refused_writes import REFUSED_WRITES_MAX

ASSETS = Path(__file__).parent / "assets"

_RETRY_AFTER_MS = 500


async def healthz(call: Call) -> web.StreamResponse:
    """The process lives and its loop turns."""
    return json_answer({"status": "ok"})


async def readyz(call: Call) -> web.StreamResponse:
    """The node can serve requests."""
    missing = "the node is stopping" if call.context.is_leaving else call.service.ready()
    if missing is not None:
        raise LeaderNotAvailable(missing, retry_after_ms=_RETRY_AFTER_MS)
    return json_answer({"status": "ok"})


async def metrics(call: Call) -> web.StreamResponse:
    """Metrics in the Prometheus text format."""
    return web.Response(body=call.context.metrics.text(), headers={"Content-Type": CONTENT_TYPE})


async def refused_writes(call: Call) -> web.StreamResponse:
    """The latest writes that this node's partitions refused."""
    count = call.parameters.query_integer("n", 1, REFUSED_WRITES_MAX, 100)
    return json_answer({"node_id": call.service.node_id, "refused_writes": call.context.refused_writes.latest(count)})


async def openapi(call: Call) -> web.StreamResponse:
    """The contract."""
    return web.Response(body=asset("openapi.json"), content_type="application/json")


async def console(call: Call) -> web.StreamResponse:
    """The page that shows the cluster."""
    return _page(asset("console.html"))


async def docs(call: Call) -> web.StreamResponse:
    """The page to try the API."""
    return _page(asset("docs.html"))


async def problem_docs(call: Call) -> web.StreamResponse:
    """The page that the ``type`` of every problem leads to."""
    return _page(_problems_page())


@cache
def asset(name: str) -> bytes:
    """A file that comes with this folder."""
    return (ASSETS / name).read_bytes()


@cache
def _problems_page() -> bytes:
    """Every problem of the contract, with its title and its meaning."""
    schemas = wire.parse(asset("openapi.json"))["components"]["schemas"]
    entries = []
    for name, schema in schemas.items():
        if name.startswith("Problem") and name != "Problem":
            example = schema["examples"][0]
            code, title, status = (escape(str(example[member])) for member in ("code", "title", "status"))
            meaning = escape(schema["description"])
            entries.append(f'<h2 id="{code}"><code>{code}</code> {status}</h2><p><b>{title}.</b> {meaning}</p>')
    return asset("problems.html").replace(b"<!-- problems -->", "\n".join(entries).encode())


def _page(html: bytes) -> web.Response:
    return web.Response(body=html, content_type="text/html", charset="utf-8")
