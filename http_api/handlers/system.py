"""Routes of one node, never passed on: health, metrics, the contract, and its pages."""

import re
from base64 import b64encode
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from hashlib import sha256
from html import escape
from pathlib import Path

from aiohttp import web

from ...partition.api.cluster import Stalls
from ...partition.errors import LeaderNotAvailable, Unauthenticated
from ...partition.refusal_texts import BY_CODE, BY_REASON, NO_TEXT
from ..codec import json_codec, problems
from ..request.call import Call, json_answer
from ..request.metrics import CONTENT_TYPE
from ..request.stalls import KEPT_MAX

HSTS_S = 365 * 24 * 3600
"""How long a browser that has seen a page by HTTPS does not come back without it (RFC 6797)."""
PAGES_MAX = 8
"""Pages whose scripts and styles are not digested again."""
ASSETS = Path(__file__).parents[1] / "assets"

_RETRY_AFTER_MS = 500
_CODE = re.compile("`([^`]*)`")
_POLICY = {
    "default-src": "'none'",
    "connect-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
}


async def healthz(call: Call) -> web.StreamResponse:
    """The process runs, and so does its event loop."""
    return json_answer({"status": "ok"})


async def readyz(call: Call) -> web.StreamResponse:
    """The node can serve all that a node serves."""
    return _readiness(call, lambda part: True)


async def readyz_data(call: Call) -> web.StreamResponse:
    """The node can serve records: its own partitions, and others by their leaders. For load balancers."""
    return _readiness(call, lambda part: part in ("node", "data"))


async def readyz_control(call: Call) -> web.StreamResponse:
    """The node can have sessions, grants and topics decided."""
    return _readiness(call, lambda part: part in ("node", "control"))


def _readiness(call: Call, counts: Callable[[str], bool]) -> web.Response:
    """If it is not ready, a problem with the reasons of the parts that count. It is no refusal in the metrics: a load
    balancer that asks a node which starts is no client that found no leader.
    """
    reasons = [each for each in call.front.unready() if counts(each.part)]
    if reasons:
        detail = "; ".join(each.detail for each in reasons)
        unready = LeaderNotAvailable(detail, retry_after_ms=_RETRY_AFTER_MS, reasons=reasons)
        return problems.answer(problems.document(unready, call.id))
    return json_answer({"status": "ok"})


async def metrics(call: Call) -> web.StreamResponse:
    """Metrics in the Prometheus text format. Anyone may see them, but names of consumer groups and topics."""
    try:
        names = call.caller.may("read", "cluster", "")
    except Unauthenticated:
        names = False
    return web.Response(body=await call.context.metrics.text(names=names), headers={"Content-Type": CONTENT_TYPE})


async def list_stalls(call: Call) -> web.StreamResponse:
    """The latest times in which this node's event loop stood still, and what held it."""
    count = call.parameters.query_integer("n", 1, KEPT_MAX, KEPT_MAX)
    return json_answer(Stalls(call.service.node_id, call.context.stalls.latest(count)))


async def openapi(call: Call) -> web.StreamResponse:
    """The contract."""
    return web.Response(body=asset("openapi.json"), content_type="application/json")


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


@lru_cache(2 * PAGES_MAX)
def _digests(html: bytes, element: bytes) -> str:
    """A page runs its own script, named by its digest, and no other."""
    inline = re.findall(rb"<%b>(.*?)</%b>" % (element, element), html, re.DOTALL)
    return " ".join(f"'sha256-{b64encode(sha256(text).digest()).decode()}'" for text in inline) or "'none'"


def _page(call: Call, html: bytes) -> web.Response:
    allowed = {f"{kind}-src": _digests(html, kind.encode()) for kind in ("script", "style")}
    return web.Response(body=html, content_type="text/html", charset="utf-8", headers=page_headers(call, allowed))


def page_headers(call: Call, allowed: dict[str, str]) -> dict[str, str]:
    """What a page may do in a browser (Content Security Policy, level 2): load and run what ``allowed`` names, and ask
    the node that it came from. No page of elsewhere may frame it.
    """
    policy = "; ".join(f"{directive} {sources}" for directive, sources in (_POLICY | allowed).items())
    headers = {"Content-Security-Policy": policy, "Referrer-Policy": "same-origin"}
    if call.is_encrypted:
        headers["Strict-Transport-Security"] = f"max-age={HSTS_S}"
    return headers
