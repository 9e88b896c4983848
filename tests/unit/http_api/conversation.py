"""Talks to real servers over fake services, and holds every answer against the contract that the server
itself serves.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from typing import Any

import aiohttp
from jsonschema import Draft202012Validator
from multidict import CIMultiDict
from yarl import URL

from stockade.cluster.access.principals import Access
from stockade.http_api.app import DEFAULT_BOUNDS, HttpServer, start_http
from stockade.http_api.handlers.system import asset
from stockade.http_api.request.connections import ConnectionBounds

from .fake_cluster import FakeCluster
from .fake_service import FakeService

JSON = {"Content-Type": "application/json"}
TEXT = {"Content-Type": "text/plain"}
NDJSON = {"Content-Type": "application/x-ndjson"}
ARROW = {"Content-Type": "application/vnd.apache.arrow.stream"}
RECORDS = "/v1/topics/orders/partitions/0/records"

Headers = Mapping[str, str] | list[tuple[str, str]]


@dataclass
class Answer:
    """One answer, its body read to the end."""

    status: int
    headers: CIMultiDict[str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Conversation:
    """A client of one node."""

    service: FakeService
    server: HttpServer
    session: aiohttp.ClientSession
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def call(
        self, method: str, path: str, body: Any = None, headers: Headers | None = None, *, valid: bool = True
    ) -> Answer:
        """Send a request (a body that is no bytes goes as JSON) and check the answer against the contract."""
        sent = CIMultiDict(headers or {})
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            sent.setdefault("Content-Type", "application/json")
        url = URL(self.url + path, encoded=True)
        async with self.session.request(method, url, data=body and BytesIO(body), headers=sent) as response:
            answer = Answer(response.status, CIMultiDict(response.headers), await response.read())
        if valid:
            check(method, path.partition("?")[0], answer)
        return answer

    async def topic(self, name: str = "orders", partitions: int = 1, **config: Any) -> Any:
        answer = await self.call("POST", "/v1/topics", {"name": name, "partitions": partitions, "config": config})
        assert answer.status == 201, answer.body
        return answer.json

    async def values(self, path: str = RECORDS) -> list[Any]:
        """Values of all records of a partition."""
        answer = await self.call("GET", f"{path}?max_bytes=67108864")
        return [record.get("value", record.get("value_base64")) for record in answer.json["records"]]


@asynccontextmanager
async def nodes(
    count: int, access: Access | None = None, bounds: ConnectionBounds = DEFAULT_BOUNDS
) -> AsyncIterator[list[Conversation]]:
    """A cluster of ``count`` nodes n1, n2, …; n1 leads the controller."""
    cluster = FakeCluster()
    async with AsyncExitStack() as stack:
        stack.callback(cluster.close)
        found = []
        for number in range(count):
            service = FakeService(cluster, f"n{number + 1}")
            server = await start_http(service, "127.0.0.1", 0, access, bounds=bounds)
            server.front.leader_wait_s = 0
            stack.push_async_callback(server.close)
            session = await stack.enter_async_context(_session())
            found.append(Conversation(service, server, session, server.port))
            cluster.urls[service.node_id] = found[-1].url
        yield found


def run(test: Callable[[Conversation], Awaitable[None]]) -> None:
    """Run a test against one node that has the topic ``orders``."""

    async def main() -> None:
        async with nodes(1) as (node,):
            await node.topic()
            await test(node)

    asyncio.run(main())


def check(method: str, path: str, answer: Answer) -> None:
    """The answer is one that the contract documents: status, media type, body and headers."""
    if answer.status >= 400:
        check_problem(answer)
    operation = _operation(method, path)
    if operation is None:
        assert answer.status in (404, 405), answer
        return
    if answer.status in (404, 405, 406) and answer.json["code"] in (
        "NOT_FOUND",
        "METHOD_NOT_ALLOWED",
        "NOT_ACCEPTABLE",
    ):
        return
    documented = _resolve(operation["responses"].get(str(answer.status)))
    assert documented is not None, f"{method} {path} must not answer {answer.status}: {answer.body!r}"
    for name, header in documented.get("headers", {}).items():
        _check_header(name, _resolve(header), answer)
    media = answer.headers.get("Content-Type", "").partition(";")[0]
    content = documented.get("content", {})
    assert (media in content) if content else not answer.body, (media, answer.body)
    if media.endswith("json") and media != "application/x-ndjson":
        _validator(json.dumps(content[media]["schema"])).validate(answer.json)
        assert list(_undocumented(answer.json, content[media]["schema"])) == []


def check_problem(answer: Answer) -> None:
    """The answer is the problem document of its code."""
    assert answer.headers["Content-Type"] == "application/problem+json", answer
    problem = answer.json
    name = _problem_schemas()[problem["code"]]
    _validator(json.dumps({"$ref": f"#/components/schemas/{name}"})).validate(problem)
    assert list(_undocumented(problem, {"$ref": f"#/components/schemas/{name}"})) == []
    assert problem["status"] == answer.status
    assert problem["type"] == f"/docs/problems#{problem['code']}"
    example = document()["components"]["schemas"][name]["examples"][0]
    assert problem["title"] == example["title"]
    if "retry_after_ms" in problem:
        assert int(answer.headers["Retry-After"]) == -(-problem["retry_after_ms"] // 1000)


@cache
def document() -> Any:
    """The contract as it is served."""
    return json.loads(asset("openapi.json"))


def _check_header(name: str, documented: Any, answer: Answer) -> None:
    optional = {"Stockade-Base-Offset", "Stockade-Next-Offset"}
    value = answer.headers.get(name)
    if value is None:
        assert name in optional, f"{name} is missing"
        return
    kind = documented["schema"]["type"]
    if kind == "integer":
        assert value.isdecimal(), (name, value)
    if kind == "boolean":
        assert value in ("true", "false"), (name, value)


def _operation(method: str, path: str) -> Any:
    asked = path.strip("/").split("/")
    for template, methods in document()["paths"].items():
        parts = template.strip("/").split("/")
        if len(parts) == len(asked) and all(p.startswith("{") or p == a for p, a in zip(parts, asked, strict=True)):
            return methods.get(method.lower())
    return None


def _resolve(value: Any) -> Any:
    while isinstance(value, dict) and "$ref" in value:
        target: Any = document()
        for part in value["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        value = target
    return value


def _undocumented(value: Any, *schemas: Any, place: str = "") -> Iterator[str]:
    """The places of the members of an answer that none of the schemas has: generated clients lose them, or cannot read
    the answer. A schema without properties allows all; a problem in an answer has the members of its code.
    """
    whole = [part for schema in schemas for part in _parts(schema)]
    if isinstance(value, list):
        for each in value:
            yield from _undocumented(each, *(part["items"] for part in whole if "items" in part), place=f"{place}[]")
    known = [part["properties"] for part in whole if "properties" in part]
    if not isinstance(value, dict) or not known:
        return
    for name, member in value.items():
        found = [properties[name] for properties in known if name in properties]
        if found and name == "problem":
            found = [{"$ref": f"#/components/schemas/{_problem_schemas()[member['code']]}"}]
        if found:
            yield from _undocumented(member, *found, place=f"{place}/{name}")
        else:
            yield f"{place}/{name}"


def _parts(schema: Any) -> Iterator[Any]:
    """A schema and all that it is made of, or may be one of."""
    schema = _resolve(schema)
    yield schema
    for part in (*schema.get("allOf", ()), *schema.get("oneOf", ()), *schema.get("anyOf", ())):
        yield from _parts(part)


@cache
def _validator(schema: str) -> Draft202012Validator:
    return Draft202012Validator(json.loads(schema) | {"components": document()["components"]})


@cache
def _problem_schemas() -> dict[str, str]:
    schemas = document()["components"]["schemas"]
    return {
        schema["examples"][0]["code"]: name
        for name, schema in schemas.items()
        if name.startswith("Problem") and name != "Problem"
    }


@asynccontextmanager
async def _session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(
        cookie_jar=aiohttp.DummyCookieJar(), skip_auto_headers=("Content-Type", "Accept-Encoding")
    ) as session:
        yield session
