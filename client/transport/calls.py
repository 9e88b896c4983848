"""Calls with a JSON answer: encoding, decoding, and repetition while a refusal concerns only the moment.

Every route that is used this way may be repeated, also after an unknown outcome; docs/openapi.yaml says why for each.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from ...partition.api.cluster import Cluster
from ...partition.errors import InvalidRequest, RequestTimedOut, StockadeError, ThrottlingQuotaExceeded
from ..config import ClientConfig
from ..errors import ClusterUnreachable, UnreadableAnswer
from ..loop_affinity import LoopAffinity
from ..retry import pause_before_next
from .http import Answer, Request, Transport
from .outage import Outage
from .question import Question

T = TypeVar("T")
CLUSTER = "/v1/cluster"
NODES_AGAIN_S = 60.0
"""Least time between two questions for the cluster's nodes: nodes of the bootstrap list may go, and others come."""
JSON = {"Content-Type": "application/json"}


class Calls:
    """A client's transport: ``once`` is a single attempt, ``send`` repeats, ``call`` repeats and decodes.

    It learns the cluster's nodes from the cluster: after a request that was answered it asks for them, if
    NODES_AGAIN_S have passed. A client that is idle asks nothing.
    """

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._transport = Transport(config)
        self._nodes = Question("the cluster's nodes", self._ask_for_nodes, NODES_AGAIN_S)
        self.avoid: Callable[[str], None] = self._transport.avoid
        self.affinity: LoopAffinity = self._transport.affinity
        self.outage: Outage = Outage()

    async def close(self) -> None:
        """Close all connections; the outcome of requests in flight is unknown. Raises as `LoopAffinity.enter`."""
        await self._transport.close()
        await self._nodes.close()

    @property
    def has_room_to_wait(self) -> bool:
        """As `Transport.has_room_to_wait`."""
        return self._transport.has_room_to_wait

    async def once(self, request: Request) -> Answer:
        """The 2xx answer to a single attempt. Raises the refusal; RequestTimedOut when no answer came."""
        answer = await self._transport.request(request)
        self._nodes.if_due()
        return answer

    async def connect(self, patience_ms: int) -> Cluster:
        """Ask for the cluster's description, and remember its nodes. The nodes of the bootstrap list are asked in turn,
        again and again for ``patience_ms``.

        Each node has ``connect_timeout_ms``, so that a node that hangs does not hide the others; when none answers in
        that time, one more attempt has the whole ``request_timeout_ms``. A node that has too much to do is there, so
        it is waited for as by any call. Raises ClusterUnreachable, ThrottlingQuotaExceeded.
        """
        ask = Request(method="GET", path=CLUSTER)
        nodes = self._config.bootstrap if len(self._config.bootstrap) > 1 else ()
        hurried = [replace(ask, node=node, timeout_ms=self._config.connect_timeout_ms) for node in nodes]
        attempt = partial(self._first, [*hurried, ask], RequestTimedOut)
        try:
            answer = await self.repeat(f"GET {CLUSTER}", attempt, patience_ms)
        except ThrottlingQuotaExceeded:
            answer = await self.repeat(f"GET {CLUSTER}", attempt, self._config.delivery_timeout_ms - patience_ms)
        cluster = decode(answer, Cluster)
        self._learn(cluster)
        self._nodes.put_off()
        return cluster

    async def answer_without(self, node: str, path: str) -> Answer:
        """The first answer of the nodes other than ``node``, each of which has ``standstill_ms``.

        Raises the last node's refusal, or ClusterUnreachable.
        """
        ask = Request(method="GET", path=path, only_node=True, timeout_ms=self._config.standstill_ms)
        asks = [replace(ask, node=other) for other in self._transport.nodes if other != node]
        if not asks:
            raise ClusterUnreachable("no other node is known")
        return await self._first(asks, StockadeError)

    async def _first(self, asks: Sequence[Request], passed_over: type[StockadeError]) -> Answer:
        """The first answer. Errors of the class ``passed_over`` are ignored, except the last request's."""
        for ask in asks[:-1]:
            with suppress(passed_over):
                return await self._transport.request(ask)
        return await self._transport.request(asks[-1])

    async def _ask_for_nodes(self) -> None:
        ask = Request(method="GET", path=CLUSTER, timeout_ms=self._config.connect_timeout_ms)
        self._learn(decode(await self._transport.request(ask), Cluster))

    def _learn(self, cluster: Cluster) -> None:
        self._transport.learn(node.url for node in cluster.nodes)

    async def call(self, kind: type[T], method: str, path: str, **request: Any) -> T:
        """``send``, with the answer's body decoded as a ``kind``."""
        return decode(await self.send(method, path, **request), kind)

    async def send(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        patience_ms: int | None = None,
        quiet_s: float = 0.0,
        is_wanted: Callable[[], bool] | None = None,
        final: type[StockadeError] | tuple[()] = (),
        **rest: Any,
    ) -> Answer:
        """Repeat a request while its refusal concerns only the moment, for ``patience_ms``; then raise the refusal.

        ``patience_ms`` None: ``delivery_timeout_ms``. ``quiet_s``: a wait that needs no warning. ``is_wanted``: when
        it answers False, no other attempt follows. ``final``: a refusal of this class ends the call, though its kind
        mostly concerns the moment. ``rest``: other fields of Request. A refusal after an attempt of unknown outcome has
        ``no_side_effects`` False, since that attempt may have had an effect.
        """
        if body is not None:
            rest["body"] = msgspec.json.encode(body)
            rest["headers"] = {**JSON, **rest.get("headers", {})}
        request = Request(method=method, path=path, **rest)
        is_unknown = False

        async def attempt() -> Answer:
            nonlocal is_unknown
            try:
                return await self.once(request)
            except StockadeError as error:
                is_unknown = method != "GET" and (is_unknown or not error.no_side_effects)
                if is_unknown:
                    error.had_effects()
                raise

        what = f"{method} {'/'.join(path.split('/')[:3])}"  # not the rest of the path: it may have an id, a secret
        return await self.repeat(what, attempt, patience_ms, quiet_s + request.wait_ms / 1000, is_wanted, final)

    async def repeat(
        self,
        what: str,
        attempt: Callable[[], Awaitable[T]],
        patience_ms: int | None = None,
        quiet_s: float = 0.0,
        is_wanted: Callable[[], bool] | None = None,
        final: type[StockadeError] | tuple[()] = (),
    ) -> T:
        """The answer of ``attempt``, which is repeated while its refusal concerns only the moment; arguments as `send`.

        The log warns when that takes long; ``what`` names the call there. Raises the last refusal.
        """
        patience_s = (self._config.delivery_timeout_ms if patience_ms is None else patience_ms) / 1000
        deadline_s = time.monotonic() + patience_s
        attempts = 0
        with self.outage.over(what, patience_s, quiet_s) as call:
            while True:
                try:
                    return await attempt()
                except StockadeError as error:
                    if isinstance(error, final):
                        raise
                    attempts += 1
                    pause_s = pause_before_next(self._config, attempts, error, deadline_s - time.monotonic())
                    call.error = error
                    # ``error`` ends with this block, so that no frame keeps its own error.
                    await asyncio.sleep(pause_s)
                    if is_wanted is not None and not is_wanted():
                        raise


def decode(answer: Answer, kind: type[T]) -> T:
    """The JSON body as a ``kind``. Raises UnreadableAnswer for any other body."""
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except msgspec.DecodeError as error:
        raise UnreadableAnswer(answer.source, answer.body, str(error)) from error


def present(**values: Any) -> dict[str, Any]:
    """The values that are not None."""
    return {name: value for name, value in values.items() if value is not None}


def quoted(segment: str) -> str:
    """The text, escaped as one segment of a path. Raises InvalidRequest for a ``segment`` that cannot be one."""
    if not isinstance(segment, str):
        raise InvalidRequest(f"a name must be text, and one is {segment!r:.100}")
    if segment in ("", ".", ".."):  # the path would be that of another route
        raise InvalidRequest(f"a name has at least one character, and is neither '.' nor '..'; one is {segment!r}")
    return quote(segment, safe="")
