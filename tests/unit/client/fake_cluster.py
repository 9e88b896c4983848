"""A small cluster to test clients against: real HTTP, real partition machines, and faults on request.

It runs on a thread of its own, so that asynchronous, blocking and command-line clients can all talk to it.
"""

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum, auto
from typing import Any

import msgspec
from aiohttp import web

from stockade.partition.commands import Stamp, Token
from stockade.partition.errors import (
    LeaderNotAvailable,
    MessageTooLarge,
    NotFound,
    NotLeaderOrFollower,
    ProducerBusy,
    ProducerFenced,
    RequestTimedOut,
    SessionExpired,
    StockadeError,
    ThrottlingQuotaExceeded,
    UnknownSession,
)
from stockade.partition.records.batch import stream

from .fake_state import FakeState, Grant, Topic

ARROW = "application/vnd.apache.arrow.stream"
RECORDS = "/v1/topics/{topic}/partitions/{partition}/records"


class Fault(Enum):
    """What happens to one request."""

    LOSE_REQUEST = auto()
    LOSE_REPLY = auto()
    GATEWAY_TIMEOUT = auto()
    PORTAL = auto()
    TIMED_OUT = auto()
    UNAVAILABLE = auto()
    MOVED = auto()
    LEADERLESS = auto()
    HOLD = auto()
    HOLD_AND_LOSE_REQUEST = auto()
    HOLD_AND_LOSE_REPLY = auto()
    TOO_LARGE = auto()
    THROTTLED = auto()


class FakeCluster(FakeState):
    """``faults`` strike appends, and ``read_faults`` fetches, one each in the order of arrival. When the list is empty,
    ``faults_at`` strike every append to these partitions, and ``fault_for`` decides about the others. ``grant_faults``
    strike requests for grants, ``own_faults`` claims of resources, ``renewal_faults`` renewals of sessions. HOLD waits
    for ``released``. ``requests`` has (method, path with query), ``parts`` (topic, partition) of each part of a request
    for many partitions: faults strike parts as they strike appends, and LOSE_REQUEST and LOSE_REPLY their whole
    request. ``refusals`` answer the next such requests as a whole.
    """

    def __init__(self) -> None:
        super().__init__()
        self.nodes: list[str] = []
        self.faults: list[Fault | None] = []
        self.read_faults: list[Fault] = []
        self.grant_faults: list[Fault | None] = []
        self.own_faults: list[Fault | None] = []
        self.renewal_faults: list[Fault] = []
        self.faults_at: dict[int, Fault] = {}
        self.fault_for: Callable[[], Fault | None] = lambda: None
        self.while_one_waits: Callable[[], None] = lambda: None
        self.requests: list[tuple[str, str]] = []
        self.parts: list[tuple[str, int]] = []
        self.refusals: list[StockadeError] = []
        self.released = asyncio.Event()
        self.unknown_routes: set[str] = set()
        """What nodes of another release do not know."""
        self.refusals_of: dict[str, list[StockadeError]] = {}
        """By route, the refusals of the next requests."""
        self.leader = 0
        """Which of the nodes is said to lead everything."""
        self.expired = False
        self.installs_slowly = False
        self.installs_until_released = False
        """A grant that is installed slowly is in force when ``released`` is set."""
        self._arrival = threading.Condition()
        self._loop = asyncio.new_event_loop()
        self._ports: list[tuple[web.AppRunner, socket.socket]] = []

    def paths(self, method: str) -> list[str]:
        return [path for verb, path in self.requests if verb == method]

    async def seen(self, method: str, count: int, part: str = "/") -> None:
        """Return when so many requests of this method have arrived whose path contains ``part``."""
        await asyncio.to_thread(self._wait_for, lambda: sum(part in path for path in self.paths(method)) >= count)

    def _wait_for(self, condition: Callable[[], bool]) -> None:
        with self._arrival:
            assert self._arrival.wait_for(condition, 60)

    def release_held(self) -> None:
        self._loop.call_soon_threadsafe(self.released.set)

    def kill(self, node: str) -> None:
        """The node's port answers nothing from now on."""
        asyncio.run_coroutine_threadsafe(_end(*self._ports[self.nodes.index(node)]), self._loop).result(60)

    @contextmanager
    def running(self, nodes: int) -> Iterator["FakeCluster"]:
        thread = threading.Thread(target=self._loop.run_forever)
        thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._start(nodes), self._loop).result(60)
            yield self
        finally:
            self.release_held()
            asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(60)
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join()
            self._loop.close()

    async def _start(self, nodes: int) -> None:
        for _ in range(nodes):
            runner = web.AppRunner(self._app(), shutdown_timeout=0.1)
            await runner.setup()
            listener = socket.create_server(("127.0.0.1", 0))
            await web.SockSite(runner, listener).start()
            self._ports.append((runner, listener))
            self.nodes.append(f"http://127.0.0.1:{listener.getsockname()[1]}")

    async def _stop(self) -> None:
        for runner, listener in self._ports:
            await _end(runner, listener)

    def _app(self) -> web.Application:
        app = web.Application(middlewares=[self._answer], client_max_size=64 << 20)
        app.router.add_get("/readyz", self._get_ready)
        app.router.add_get("/v1/cluster", self._get_cluster)
        app.router.add_get("/v1/topics", self._get_topics)
        app.router.add_post("/v1/topics", self._post_topic)
        app.router.add_get("/v1/topics/{topic}", self._get_topic)
        app.router.add_delete("/v1/topics/{topic}", self._delete_topic)
        app.router.add_post("/v1/producers", self._post_producer)
        app.router.add_post("/v1/sessions", self._post_session)
        for path in ("/v1/session", "/v1/sessions/{session}"):
            app.router.add_put(path, self._put_session)
            app.router.add_delete(path, self._delete_session)
        app.router.add_post("/v1/topics/{topic}/grants", self._post_grant)
        app.router.add_get("/v1/tickets/{ticket}", self._get_ticket)
        app.router.add_delete("/v1/tickets/{ticket}", self._delete_ticket)
        app.router.add_delete("/v1/grants/{grant}", self._delete_grant)
        app.router.add_post("/v1/groups/{group}/own", self._post_own)
        app.router.add_delete("/v1/groups/{group}/own", self._delete_own)
        app.router.add_get("/v1/groups/{group}/resources", self._get_resources)
        app.router.add_post(RECORDS, self._post_records)
        app.router.add_post("/v1/append", self._post_append)
        app.router.add_get(RECORDS, self._get_records)
        app.router.add_get("/v1/topics/{topic}/partitions/{partition}/offsets", self._get_offsets)
        app.router.add_get("/v1/topics/{topic}/partitions/{partition}/contents", self._get_contents)
        app.router.add_get("/v1/topics/{topic}/partitions/{partition}/tail", self._get_tail)
        return app

    @web.middleware
    async def _answer(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        with self._arrival:
            self.requests.append((request.method, request.path_qs))
            self._arrival.notify_all()
        try:
            resource = request.match_info.route.resource
            if resource is not None and resource.canonical in self.unknown_routes:
                raise NotFound("no such route", what="route")
            if resource is not None and (refusals := self.refusals_of.get(resource.canonical)):
                raise refusals.pop(0)
            return await handler(request)
        except StockadeError as error:
            return problem(error)

    async def _get_ready(self, _: web.Request) -> web.Response:
        return answer({"status": "ok"})

    async def _get_cluster(self, request: web.Request) -> web.Response:
        controller = {"leader": self.nodes[0], "leader_node": "n1", "leader_term": 1}
        nodes = [
            {"node_id": f"n{i}", "url": url, "raft_address": "127.0.0.1:9", "zone": None, "alive": True}
            for i, url in enumerate(self.nodes, 1)
        ]
        asked = next((node["node_id"] for node in nodes if str(node["url"]).endswith(f":{request.url.port}")), "n1")
        return answer({"cluster_id": "c", "node_id": asked, "version": "0", "controller": controller, "nodes": nodes})

    async def _get_topics(self, _: web.Request) -> web.Response:
        topics = [
            {"name": topic.name, "topic_id": topic.topic_id, "partitions": len(topic.machines)}
            for topic in self.topics.values()
        ]
        return answer({"topics": topics})

    async def _post_topic(self, request: web.Request) -> web.Response:
        body = await request.json()
        fenced = body["config"].get("require_fence", False)
        return answer(self._described(self.create(body["name"], body["partitions"], require_fence=fenced)), 201)

    async def _get_topic(self, request: web.Request) -> web.Response:
        return answer(self._described(self.topic(request.match_info["topic"])))

    async def _delete_topic(self, request: web.Request) -> web.Response:
        del self.topics[self.topic(request.match_info["topic"]).name]
        return web.Response(status=204)

    async def _post_producer(self, request: web.Request) -> web.Response:
        body = await request.json()
        name = body["name"]
        pair = body.get("producer_id"), body.get("producer_epoch")
        if "producer_id" in body and self.producers.get(name, pair) != pair:
            raise ProducerFenced(current_epoch=self.producers[name][1], reason="superseded")
        pid, epoch = self.init_producer(name)
        return answer({"producer_id": pid, "producer_epoch": epoch, "name": name})

    async def _post_session(self, request: web.Request) -> web.Response:
        body = await request.json()
        return self._session(self.open_session(body["ttl_ms"]), 201)

    async def _put_session(self, request: web.Request) -> web.Response:
        await self._before(request, self.renewal_faults.pop(0) if self.renewal_faults else None)
        if self.expired:
            raise SessionExpired
        session = session_of(request)
        if session not in self.sessions:
            raise UnknownSession
        self.renew(session, self.sessions[session])
        return self._session(session, 200)

    async def _delete_session(self, request: web.Request) -> web.Response:
        self.close_session(session_of(request))
        return web.Response(status=204)

    async def _post_grant(self, request: web.Request) -> web.Response:
        body = await request.json()
        topic = self.topic(request.match_info["topic"])
        wanted = body["partitions"]
        numbers = list(range(len(topic.machines))) if wanted == "all" else wanted
        session = request.headers["Stockade-Session"]
        fault = self.grant_faults.pop(0) if self.grant_faults else None
        await self._before(request, fault)
        given = self._give(topic, session, numbers, body["mode"])
        self._after(request, fault)
        return given

    def _give(self, topic: Topic, session: str, numbers: list[int], mode: str) -> web.Response:
        """A repeated request is answered with the grant or ticket that it has got, as by a node."""
        mine = [each for each in self.grants.values() if (each.session, each.topic) == (session, topic)]
        for grant in mine:
            if grant.partitions == numbers and (grant.mode != "Shared" or mode == "Shared"):
                return answer(granted(grant), 201)
        if mode == "WaitForExclusive":
            name = next((name for name, each in self.line.items() if each == (session, topic, numbers)), None)
            if name is None:
                self.index += 1
                name = f"w-{self.index}"
                self.line[name] = session, topic, numbers
            return answer(self._in_line(name), 202)
        grant = self.acquire(topic, session, numbers, mode)
        return answer(ticket(grant, "installing"), 202) if self.installs_slowly else answer(granted(grant), 201)

    def _in_line(self, name: str) -> dict[str, Any]:
        session, topic, numbers = self.line[name]
        try:
            grant = self.acquire(topic, session, numbers, "WaitForExclusive")
        except ProducerBusy:
            waiting = {"topic": topic.name, "partitions": numbers, "position": 0, "grant": None}
            return {"ticket": name, "state": "waiting", **waiting}
        del self.line[name]
        return {**ticket(grant, "granted"), "ticket": name}

    async def _delete_ticket(self, request: web.Request) -> web.Response:
        key = request.match_info["ticket"]
        if self.line.pop(key, None) is not None:
            return answer({"ticket": key, "state": "cancelled", "grant": None})
        if self.installs_until_released and not self.released.is_set():
            return answer({"ticket": key, "state": "installing", "grant": None})
        return answer({"ticket": key, "state": "granted", "grant": granted(self.grants[key])})

    async def _get_ticket(self, request: web.Request) -> web.Response:
        if request.match_info["ticket"] in self.line:
            self.while_one_waits()
            return answer(self._in_line(request.match_info["ticket"]))
        if self.installs_until_released:
            await self.released.wait()
        return answer(ticket(self.grants[request.match_info["ticket"]], "granted"))

    async def _delete_grant(self, request: web.Request) -> web.Response:
        self.release(request.match_info["grant"])
        return web.Response(status=204)

    async def _post_own(self, request: web.Request) -> web.Response:
        body, group, session = await request.json(), request.match_info["group"], request.headers["Stockade-Session"]
        fault = self.own_faults.pop(0) if self.own_faults else None
        await self._before(request, fault)
        results = self.own(group, session, body["claims"], atomic=body["atomic"], sever=body["sever"])
        self._after(request, fault)
        return answer({"group": group, "results": results})

    async def _delete_own(self, request: web.Request) -> web.Response:
        for resource in request.query.getall("resource"):
            self.disown(request.match_info["group"], request.headers["Stockade-Session"], resource)
        return web.Response(status=204)

    async def _get_resources(self, request: web.Request) -> web.Response:
        group = request.match_info["group"]
        rows = [(name, row) for (each, name), row in sorted(self.owned.items()) if each == group]
        resources = [
            {
                "resource": name,
                "owned": row.owner is not None,
                "client_id": row.owner,
                "generation": row.generation,
                "fence_epoch": row.fence_epoch,
            }
            for name, row in rows
        ]
        return answer({"group": group, "resources": resources})

    async def _post_records(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        topic, partition = request.match_info["topic"], int(request.match_info["partition"])
        fault = self.faults.pop(0) if self.faults else self.faults_at.get(partition) or self.fault_for()
        await self._before(request, fault)
        stored = self.append(topic, partition, body, stamp_of(request), token_of(request), **conditions_of(request))
        self._after(request, fault)
        fields = msgspec.structs.asdict(stored)
        return answer({**fields, "topic": topic, "partition": partition, "leader_term": 1})

    async def _post_append(self, request: web.Request) -> web.StreamResponse:
        """Each part is answered when it is decided, as a node does it."""
        if self.refusals:
            raise self.refusals.pop(0)
        line, _, streams = (await request.read()).partition(b"\n")
        stream = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await stream.prepare(request)

        async def decide(number: int, entry: dict[str, Any], body: bytes) -> None:
            answered = {"part": number} | await self._decide(request, entry, body)
            with suppress(ConnectionError):  # the client is gone, or the connection was cut by another part
                await stream.write(msgspec.json.encode(answered) + b"\n")

        async with asyncio.TaskGroup() as parts:
            for number, entry in enumerate(msgspec.json.decode(line)["parts"]):
                body, streams = streams[: entry["bytes"]], streams[entry["bytes"] :]
                self.parts.append((entry["topic"], entry["partition"]))
                parts.create_task(decide(number, entry, body))
        assert not streams
        return stream

    async def _decide(self, request: web.Request, entry: dict[str, Any], body: bytes) -> dict[str, Any]:
        topic, partition, stamp, fence = entry["topic"], entry["partition"], entry["producer"], entry.get("fence")
        fault = self.faults.pop(0) if self.faults else self.faults_at.get(partition) or self.fault_for()
        try:
            await self._before(request, fault)
            token = None if fence is None else Token(fence["grant"], fence["epoch"], fence["session"])
            others = {name: entry.get(name) for name in ("if_log_end", "fence_epoch", "message_id")}
            numbers = Stamp(stamp["id"], stamp["epoch"], stamp["seq"])
            stored = self.append(topic, partition, body, numbers, token, **others)
            self._after(request, fault)
        except StockadeError as error:
            return {"problem": document(error)}
        except web.HTTPGatewayTimeout:
            return {}  # a line that says nothing: the outcome stays unknown
        place = {"topic": topic, "partition": partition, "leader_term": 1}
        return {"stored": msgspec.structs.asdict(stored) | place}

    async def _get_records(self, request: web.Request) -> web.StreamResponse:
        fault = self.read_faults.pop(0) if self.read_faults else None
        await self._before(request, fault)
        machine = self.machine(request.match_info["topic"], int(request.match_info["partition"]))
        words = {"earliest": machine.log_start, "latest": machine.log_end}
        asked = request.query["offset"]
        piece = machine.log.read(words[asked] if asked in words else int(asked), int(request.query["max_bytes"]))
        self._after(request, fault)
        headers = {
            "Stockade-Base-Offset": str(piece.batches[0].base_offset if piece.batches else piece.next_offset),
            "Stockade-Next-Offset": str(piece.next_offset),
            "Stockade-Log-Start": str(piece.log_start),
            "Stockade-Log-End": str(piece.log_end),
            "Stockade-Stale": "true" if request.query.get("local") else "false",
        }
        return web.Response(body=b"".join(stream(piece.messages())), content_type=ARROW, headers=headers)

    async def _get_offsets(self, request: web.Request) -> web.Response:
        topic, partition = request.match_info["topic"], int(request.match_info["partition"])
        machine = self.machine(topic, partition)
        bounds = {"log_start": machine.log_start, "log_end": machine.log_end}
        return answer(
            {"topic": topic, "partition": partition, "offset": machine.log_end, "timestamp_ms": None, **bounds}
        )

    async def _get_contents(self, request: web.Request) -> web.Response:
        topic, partition = request.match_info["topic"], int(request.match_info["partition"])
        machine = self.machine(topic, partition)
        bounds = {"log_start": machine.log_start, "log_end": machine.log_end}
        held = {"stored_bytes": sum(map(len, self.values(topic, partition))), "total": 0, "positions": []}
        return answer({"topic": topic, "partition": partition, **bounds, **held})

    async def _get_tail(self, request: web.Request) -> web.Response:
        topic, partition = request.match_info["topic"], int(request.match_info["partition"])
        machine = self.machine(topic, partition)
        known = {"topic": topic, "partition": partition, "topic_epoch": machine.topic_epoch}
        values = self.values(topic, partition)[-int(request.query["n"]) :]
        first = machine.log_end - len(values)
        records = [
            {"offset": first + k, "timestamp_ms": 0, "writer_epoch": 0, "value": value.decode()}
            for k, value in enumerate(values)
        ]
        return answer({**known, "log_start": machine.log_start, "log_end": machine.log_end, "records": records})

    async def _before(self, request: web.Request, fault: Fault | None) -> None:
        if fault is Fault.LOSE_REQUEST:
            lose(request)
        elif fault is Fault.UNAVAILABLE:
            raise LeaderNotAvailable(retry_after_ms=1)
        elif fault is Fault.TOO_LARGE:
            raise MessageTooLarge(limit=1, unit="bytes")
        elif fault is Fault.THROTTLED:
            raise ThrottlingQuotaExceeded(retry_after_ms=60_000)
        elif fault is Fault.MOVED:
            raise NotLeaderOrFollower(self.nodes[-1], 2)
        elif fault is Fault.LEADERLESS:
            raise NotLeaderOrFollower(None, None)
        elif fault in (Fault.HOLD, Fault.HOLD_AND_LOSE_REQUEST, Fault.HOLD_AND_LOSE_REPLY):
            await self.released.wait()
            if fault is Fault.HOLD_AND_LOSE_REQUEST:
                lose(request)

    def _after(self, request: web.Request, fault: Fault | None) -> None:
        if fault in (Fault.LOSE_REPLY, Fault.HOLD_AND_LOSE_REPLY):
            lose(request)
        elif fault is Fault.GATEWAY_TIMEOUT:
            raise web.HTTPGatewayTimeout(text="<html>")
        elif fault is Fault.PORTAL:
            raise web.HTTPOk(text="<html>Welcome to the network: log in", content_type="text/html")
        elif fault is Fault.TIMED_OUT:
            raise RequestTimedOut

    def _described(self, topic: Topic) -> dict[str, Any]:
        number = self.leader
        leader = {"leader": self.nodes[number], "leader_node": f"n{number + 1}", "leader_term": 1, "replicas": ["n1"]}
        return {
            "name": topic.name,
            "topic_id": topic.topic_id,
            "replication_factor": 1,
            "sealed": False,
            "config": {
                "max_batch_bytes": topic.batch_bytes_max,
                "require_fence": topic.require_fence,
                **topic.config,
            },
            "partitions": [
                {"partition": number, "topic_epoch": machine.topic_epoch, **leader}
                for number, machine in enumerate(topic.machines)
            ],
        }

    def _session(self, session: str, status: int) -> web.Response:
        ttl_ms = self.sessions[session]
        times = {"ttl_ms": ttl_ms, "deadline_ms": 0, "remaining_ms": ttl_ms}
        return answer({"session": session, "client_id": "c", **times}, status)


async def _end(runner: web.AppRunner, listener: socket.socket) -> None:
    """Close the runner's port and its connections.

    asyncio leaks a connection that it accepts in the turn of the loop in which its server is closed, and aiohttp one
    that its server learns of while the runner ends. So accepting ends first, some turns before.
    """
    if listener.fileno() >= 0:
        asyncio.get_running_loop().remove_reader(listener)
    for _ in range(5):
        await asyncio.sleep(0)
    await runner.cleanup()


def session_of(request: web.Request) -> str:
    return request.match_info.get("session") or request.headers["Stockade-Session"]


def stamp_of(request: web.Request) -> Stamp | None:
    numbers = [request.headers.get(f"Stockade-Producer-{name}") for name in ("Id", "Epoch", "Seq")]
    return Stamp(*(int(number) for number in numbers if number)) if numbers[0] else None


def token_of(request: web.Request) -> Token | None:
    headers = request.headers
    if "Stockade-Fence-Grant" not in headers:
        return None
    return Token(headers["Stockade-Fence-Grant"], int(headers["Stockade-Fence-Epoch"]), headers["Stockade-Session"])


def conditions_of(request: web.Request) -> dict[str, Any]:
    texts = {
        "if_log_end": request.headers.get("Stockade-If-Log-End"),
        "fence_epoch": request.query.get("fence_epoch"),
    }
    numbers = {name: int(text) for name, text in texts.items() if text is not None}
    return numbers | {"message_id": request.headers.get("Stockade-Message-Id")}


def granted(grant: Grant) -> dict[str, Any]:
    return {
        "grant": grant.grant_id,
        "topic": grant.topic.name,
        "topic_id": grant.topic.topic_id,
        "mode": grant.mode,
        "producer_name": "name",
        "partitions": grant.partitions,
        "epoch": grant.epoch,
        "epochs": {str(each): grant.topic.machines[each].topic_epoch for each in grant.partitions},
    }


def ticket(grant: Grant, state: str) -> dict[str, Any]:
    """The ticket of a grant, which has the grant's id."""
    place = {"ticket": grant.grant_id, "state": state, "position": None}
    shown = granted(grant) if state == "granted" else None
    return {**place, "topic": grant.topic.name, "partitions": grant.partitions, "grant": shown}


def answer(body: Any, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), status=status, content_type="application/json")


def problem(error: StockadeError) -> web.Response:
    body = msgspec.json.encode(document(error))
    return web.Response(body=body, status=error.status, content_type="application/problem+json")


def document(error: StockadeError) -> dict[str, Any]:
    policy = {"retriable": error.retriable, "no_side_effects": error.no_side_effects}
    common = {"type": "about:blank", "title": error.title, "status": error.status, "code": error.code}
    return {**error.fields, **common, **policy, "detail": error.detail}


def lose(request: web.Request) -> None:
    """Cut the connection under the request."""
    assert request.transport is not None
    request.transport.abort()
    raise ConnectionResetError
