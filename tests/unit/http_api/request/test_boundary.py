"""A page in a user's browser gets nothing from a node that the browser reaches, and changes nothing there."""

import asyncio
import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest
from multidict import CIMultiDict

from stockade.cluster.access.principals import Access, Token
from stockade.http_api.request.boundary import Boundary
from stockade.http_api.routes import UNDOCUMENTED, routes
from stockade.partition.errors import PermissionDenied

from ..conversation import JSON, RECORDS, TEXT, Conversation, nodes, run

EVIL = "orders.evil.example:7101"
PAGE = {"Origin": "http://evil.example"}
OWN = ["10.0.0.1:7101", "n1.orders.example:7101", "orders.example", "proxy.example:8443"]


def is_refused(
    host: str | None, origin: str | None = None, *, is_open: bool = True, is_encrypted: bool = False
) -> str | None:
    """By which reason."""
    headers = {name: value for name, value in (("Host", host), ("Origin", origin)) if value is not None}
    try:
        Boundary(OWN).check(CIMultiDict(headers), is_open=is_open, is_encrypted=lambda: is_encrypted)
    except PermissionDenied as refusal:
        return str(refusal.fields["reason"])
    return None


@pytest.mark.parametrize(
    "host",
    [
        *(None, "", "localhost", "localhost:7101", "LOCALHOST.:1", "api.localhost:7101"),
        *("127.0.0.1:7101", "127.1", "10.0.0.7", "192.168.1.5:80", "[::1]:7101", "[fe80::1]", "2130706433:7101"),
        *("n1", "n1:7101", "stockade-0:7101", "x"),
        *("n1.orders.example:7101", "N1.Orders.Example:9", "n1.orders.example.", "orders.example", "orders.example:1"),
        *("proxy.example:8443", "proxy.example"),
    ],
)
def test_no_stranger_answers_for_these_hosts(host: str | None) -> None:
    assert is_refused(host) is None


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", EVIL, "127.0.0.1.evil.example:7101", "localhost.evil.example", "evil.example.:7101"),
        *(
            "n1.orders.example.evil.example",
            "xn1.orders.example",
            "orders.example.evil",
            "localhost.example",
            "1.2.3.x",
        ),
    ],
)
def test_a_name_of_strangers_is_refused_where_everyone_may_do_everything(host: str) -> None:
    assert is_refused(host) == "foreign_host"
    assert is_refused(host, is_open=False) is None, "a page has no credentials"
    assert is_refused(host, is_encrypted=True) is None, "a page has no certificate for its name"


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("127.0.0.1:7101", "http://127.0.0.1:7101"),
        ("localhost:7101", "http://localhost:7101"),
        ("N1:7101", "http://n1:7101"),
        ("[::1]:7101", "http://[::1]:7101"),
        ("orders.example", "https://orders.example"),
        ("127.0.0.1:7101", "https://orders.example"),
        ("127.0.0.1:7101", "https://orders.example:8080"),
        ("127.0.0.1:7101", "https://proxy.example:8443"),
        ("127.0.0.1:7101", "http://n1.orders.example:7101"),
    ],
)
def test_the_nodes_own_pages_may_ask(host: str, origin: str) -> None:
    assert is_refused(host, origin) is None


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("127.0.0.1:7101", "http://evil.example"),
        ("127.0.0.1:7101", "null"),
        ("127.0.0.1:7101", ""),
        ("127.0.0.1:7101", "http://127.0.0.1:3000"),
        ("127.0.0.1:7101", "http://127.0.0.1"),
        ("127.0.0.1:7101", "http://127.0.0.1:7101.evil.example"),
        ("127.0.0.1:7101", "http://127.0.0.1:7101@evil.example"),
        ("127.0.0.1:7101", "http://localhost:7101"),
        ("127.0.0.1:7101", "https://proxy.example"),
        ("127.0.0.1:7101", "http://n1.orders.example:3000"),
        ("127.0.0.1:7101", "chrome-extension://abcdef"),
        ("127.0.0.1:7101", "http://127.0.0.1:7101 http://evil.example"),
        (None, "http://127.0.0.1:7101"),
    ],
)
def test_a_page_of_elsewhere_is_refused_with_principals_and_tls_too(host: str | None, origin: str) -> None:
    for is_open in (True, False):
        for is_encrypted in (True, False):
            assert is_refused(host, origin, is_open=is_open, is_encrypted=is_encrypted) == "foreign_page"


def test_a_page_without_tls_is_not_the_own_one_of_a_node_with_tls() -> None:
    assert is_refused("n2:7101", "http://n2:7101", is_encrypted=True) == "foreign_page"
    assert is_refused("n2:7101", "https://n2:7101", is_encrypted=True) is None


def test_every_route_that_says_anything_refuses_a_rebound_name_and_a_foreign_page() -> None:
    async def test(node: Conversation) -> None:
        for route in routes():
            path = re.sub(r"\{partition\}", "0", route.path)
            path = re.sub(r"\{\w+\}", "orders", path)
            for headers in ({"Host": EVIL}, PAGE):
                is_documented = route.path not in UNDOCUMENTED
                answer = await node.call(route.method, path, None, headers, valid=is_documented)
                if route.path in ("/healthz", "/readyz", "/readyz/data", "/readyz/control"):
                    assert (answer.status, answer.json) == (200, {"status": "ok"})
                else:
                    assert (answer.status, answer.json["code"]) == (403, "PERMISSION_DENIED"), (route, headers)

    run(test)


def test_a_form_of_another_page_appends_nothing() -> None:
    async def test(node: Conversation) -> None:
        for origin in ("http://evil.example", "null", f"http://127.0.0.1:{node.port + 1}"):
            for form in (TEXT, {"Content-Type": "text/plain;charset=UTF-8"}, JSON):
                answer = await node.call("POST", RECORDS, b"gotcha", {**form, "Origin": origin})
                assert (answer.status, answer.json["reason"]) == (403, "foreign_page")
        assert (await node.call("POST", RECORDS, b"mine", {**TEXT, "Origin": node.url})).status == 200
        assert await node.values() == ["mine"]

    run(test)


def test_a_rebound_name_appends_nothing_also_after_many_own_requests_on_the_connection() -> None:
    """The fast path recognizes a head that it has seen; the Host is a part of the head."""

    async def test(node: Conversation) -> None:
        for _ in range(3):
            assert (await node.call("POST", RECORDS, b"mine", TEXT)).status == 200
            answer = await node.call("POST", RECORDS, b"gotcha", {**TEXT, "Host": EVIL})
            assert (answer.status, answer.json["reason"]) == (403, "foreign_host")
            assert answer.json["host"] == EVIL
        assert await node.values() == ["mine"] * 3

    run(test)


def test_a_cluster_with_tokens_takes_any_host() -> None:
    token = Token("orders", hashlib.sha256(b"secret").hexdigest(), "admin")

    async def main() -> None:
        async with nodes(1, Access([token])) as (node,):
            known = {"Authorization": "Bearer secret", "Host": EVIL}
            assert (await node.call("GET", "/v1/topics", None, known)).status == 200
            assert (await node.call("GET", "/v1/topics", None, {"Host": EVIL})).status == 401
            assert (await node.call("GET", "/v1/topics", None, known | PAGE)).status == 403

    asyncio.run(main())


class _Elements(HTMLParser):
    """The elements of a page that a policy looks at."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.inline: dict[str, list[str]] = {"script": [], "style": []}
        self.attributes: set[str] = set()
        self._within = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes |= {name for name, _ in attrs}
        self._within = tag

    def handle_data(self, data: str) -> None:
        if self._within in self.inline:
            self.inline[self._within].append(data)

    def handle_endtag(self, tag: str) -> None:
        self._within = ""


def test_the_console_loads_files_of_its_node_only_and_has_no_script_of_its_own() -> None:
    async def test(node: Conversation) -> None:
        page = await node.call("GET", "/", valid=False)
        policy = dict(part.split(" ", 1) for part in page.headers["Content-Security-Policy"].split("; "))
        elements = _Elements(page.body.decode())
        assert [text for texts in elements.inline.values() for text in texts if text.strip()] == []
        loaded = {f"{kind}-src": "'self'" for kind in ("script", "style", "font", "img", "connect")}
        closed = dict.fromkeys(("default-src", "base-uri", "form-action", "frame-ancestors"), "'none'")
        assert policy == loaded | closed
        assert not [name for name in elements.attributes if name.startswith("on") or name == "style"]
        assert page.headers["Referrer-Policy"] == "same-origin"

    run(test)


def test_pages_run_their_own_script_only_and_no_other_page_frames_them() -> None:
    async def test(node: Conversation) -> None:
        for path in ("/docs", "/docs/problems"):
            page = await node.call("GET", path, valid=False)
            policy = dict(part.split(" ", 1) for part in page.headers["Content-Security-Policy"].split("; "))
            elements = _Elements(page.body.decode())
            for element, texts in elements.inline.items():
                digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts]
                assert policy[f"{element}-src"] == (" ".join(f"'sha256-{each}'" for each in digests) or "'none'")
            assert elements.inline["style"]
            assert policy["default-src"] == policy["base-uri"] == policy["form-action"] == "'none'"
            assert (policy["frame-ancestors"], policy["connect-src"]) == ("'none'", "'self'")
            assert "unsafe" not in page.headers["Content-Security-Policy"]
            assert not [name for name in elements.attributes if name.startswith("on") or name in ("style", "src")]
            assert page.headers["Referrer-Policy"] == "same-origin"

    run(test)


def test_an_answer_to_bytes_that_are_no_request_says_its_type_too() -> None:
    async def test(node: Conversation) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
        writer.write(b"<html>\r\n\r\n")
        assert b"X-Content-Type-Options: nosniff\r\n" in await reader.read()
        writer.close()

    run(test)


def test_every_answer_says_that_its_type_is_the_one_it_names() -> None:
    async def test(node: Conversation) -> None:
        for method, path, body, form in (
            ("POST", RECORDS, b"fast", TEXT),
            ("POST", RECORDS, b"by aiohttp", {**TEXT, "Origin": node.url}),
            ("POST", RECORDS + "?zz=1", b"refused", TEXT),
            ("GET", RECORDS, None, {"Accept": "application/vnd.apache.arrow.stream"}),
            ("GET", "/metrics", None, {}),
            ("GET", "/nothing", None, {}),
            ("PUT", "/healthz", None, {}),
            ("PUT", "/v1/sessions/none", None, {}),
            ("GET", "/", None, {}),
        ):
            answer = await node.call(method, path, body, form, valid=False)
            assert answer.headers.getall("X-Content-Type-Options") == ["nosniff"], (method, path)

    run(test)
