"""Handlers that every node answers for itself: health, readiness, metrics, the contract, and its pages."""

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
"""Time for which a browser that has seen a page by HTTPS uses nothing but HTTPS for this host (RFC 6797)."""
PAGES_MAX = 8
"""Pages for which the digests of scripts and styles are cached."""
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
    """Answer that the process and its event loop run."""
    return json_answer({"status": "ok"})


async def readyz(call: Call) -> web.StreamResponse:
    """Answer whether the node can serve everything."""
    return _readiness(call, lambda part: True)


async def readyz_data(call: Call) -> web.StreamResponse:
    """Answer whether the node can serve records: of its own partitions, and of others by their leaders. For load
    balancers.
    """
    return _readiness(call, lambda part: part in ("node", "data"))


async def readyz_control(call: Call) -> web.StreamResponse:
    """Answer whether the node can have sessions, grants and topics decided by the controller."""
    return _readiness(call, lambda part: part in ("node", "control"))


def _readiness(call: Call, counts: Callable[[str], bool]) -> web.Response:
    """The answer of a readiness check: a problem with the reasons of those parts that ``counts`` selects, if any. The
    problem is not counted among the refusals of the metrics, because a load balancer that asks a starting node is not a
    client that found no leader.
    """
    reasons = [each for each in call.front.unready() if counts(each.part)]
    if reasons:
        detail = "; ".join(each.detail for each in reasons)
        unready = LeaderNotAvailable(detail, retry_after_ms=_RETRY_AFTER_MS, reasons=reasons)
        return problems.answer(problems.document(unready, call.id))
    return json_answer({"status": "ok"})


async def metrics(call: Call) -> web.StreamResponse:
    """Metrics in the Prometheus text format. Anyone may see them; series with names of consumer groups and topics need
    the right ``read cluster``.
    """
    try:
        names = call.caller.may("read", "cluster", "")
    except (Unauthenticated, LeaderNotAvailable):  # the latter: this node has not heard yet who may do what
        names = False
    return web.Response(body=await call.context.metrics.text(names=names), headers={"Content-Type": CONTENT_TYPE})


async def list_stalls(call: Call) -> web.StreamResponse:
    """The latest stalls in which this node's event loop was held, and what held it."""
    count = call.parameters.query_integer("n", 1, KEPT_MAX, KEPT_MAX)
    return json_answer(Stalls(call.service.node_id, call.context.stalls.latest(count)))


async def openapi(call: Call) -> web.StreamResponse:
    """The OpenAPI contract."""
    return web.Response(body=asset("openapi.json"), content_type="application/json")


async def docs(call: Call) -> web.StreamResponse:
    """The page on which the API can be tried."""
    return _page(call, asset("docs.html"))


async def problem_docs(call: Call) -> web.StreamResponse:
    """The page that the ``type`` of every problem links to."""
    return _page(call, _problems_page())


@cache
def asset(name: str) -> bytes:
    """The bytes of a file in ``assets``."""
    return (ASSETS / name).read_bytes()


@cache
def _problems_page() -> bytes:
    """The page of every problem of the contract: its title, its meaning, and what to do next, also for each reason."""
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
    """The advice after a refusal with this code, then the advice for each of its reasons."""
    yield BY_CODE.get(code, NO_TEXT).everywhere()
    for (of, reason), text in BY_REASON.items():
        if of == code:
            yield f"`{reason}`: {text.everywhere()}"


def _html(text: str) -> str:
    """The text as HTML, with words between backticks as code."""
    return _CODE.sub(r"<code>\1</code>", escape(text))


@lru_cache(2 * PAGES_MAX)
def _digests(html: bytes, element: bytes) -> str:
    """The sources of a Content Security Policy for a page's own inline elements, by digest: it may run no others."""
    inline = re.findall(rb"<%b>(.*?)</%b>" % (element, element), html, re.DOTALL)
    return " ".join(f"'sha256-{b64encode(sha256(text).digest()).decode()}'" for text in inline) or "'none'"


def _page(call: Call, html: bytes) -> web.Response:
    allowed = {f"{kind}-src": _digests(html, kind.encode()) for kind in ("script", "style")}
    return web.Response(body=html, content_type="text/html", charset="utf-8", headers=page_headers(call, allowed))


def page_headers(call: Call, allowed: dict[str, str]) -> dict[str, str]:
    """The headers that bound what a page may do in a browser (Content Security Policy, level 2): load and run what
    ``allowed`` names, and ask the node that it came from. No page may frame it.
    """
    policy = "; ".join(f"{directive} {sources}" for directive, sources in (_POLICY | allowed).items())
    headers = {"Content-Security-Policy": policy, "Referrer-Policy": "same-origin"}
    if call.is_encrypted:
        headers["Strict-Transport-Security"] = f"max-age={HSTS_S}"
    return headers
