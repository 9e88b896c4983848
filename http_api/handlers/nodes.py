"""Handlers of state that each node has only about itself: its counters, settings and refused writes. A node can ask the
others.
"""

from urllib.parse import urlencode

from aiohttp import web

from ...cluster.front.front import unless_ended
from ...cluster.front.writes import REFUSED_WRITES_MAX
from ...partition.api.cluster import ClusterState, NodeSettings, NodeStates, Settings
from ...partition.api.records import RefusedWrite, RefusedWrites
from ...partition.errors import StockadeError
from ..codec import json_codec, media, problems
from ..codec.parameters import PARTITION_MAX
from ..request.call import Call, json_answer
from ..request.everywhere import ask_others, read_cluster, read_states
from ..request.metrics import OBSERVATION

EVENTS_MAX = 1_000_000
"""Greatest ``n``, the number of events after which the stream ends."""


async def list_nodes(call: Call) -> web.StreamResponse:
    """The state of this node, or with ``everywhere`` of every node."""
    if call.parameters.query_flag("everywhere"):
        return json_answer(await read_states(call))
    return json_answer(NodeStates([await call.context.metrics.state()]))


async def list_settings(call: Call) -> web.StreamResponse:
    """The settings of this node, or with ``everywhere`` of every node."""
    here = NodeSettings(call.service.node_id, call.service.settings())
    if not call.parameters.query_flag("everywhere"):
        return json_answer(Settings([here]))
    others, missing = await ask_others(call, "/v1/settings", Settings)
    found = [here, *(each for answer in others for each in answer.nodes)]
    return json_answer(Settings(sorted(found, key=lambda each: each.node_id), missing))


async def list_refused_writes(call: Call) -> web.StreamResponse:
    """The latest writes that this node's partitions refused, or with ``everywhere`` those of all nodes."""
    parameters = call.parameters
    count = parameters.query_integer("n", 1, REFUSED_WRITES_MAX, 100)
    topic = parameters.query_text("topic") or None
    partition = parameters.query_integer("partition", 0, PARTITION_MAX, None)
    missing: list[str] = []
    found = call.front.writes.latest_refused(count, topic, partition)
    if parameters.query_flag("everywhere"):
        wanted = {"n": count, "topic": topic, "partition": partition}
        query = urlencode({name: value for name, value in wanted.items() if value is not None})
        others, missing = await ask_others(call, f"/v1/refused_writes?{query}", RefusedWrites)
        found += [write for answer in others for write in answer.refused_writes]
        found = sorted(found, key=_at_ms, reverse=True)[:count]
    return json_answer(RefusedWrites(call.service.node_id, found, missing))


async def follow_events(call: Call) -> web.StreamResponse:
    """The state of the cluster and its nodes as an event stream, with one event a second."""
    left = call.parameters.query_integer("n", 0, EVENTS_MAX, 0) or None
    pulse, seen = call.context.pulse, 0

    async def read() -> ClusterState:
        call.check_rights()  # all followers share this reading, so credentials that a node refuses must not shorten it
        return await read_cluster(call)

    with pulse.follower():
        call.request[OBSERVATION].is_stream = True
        stream = await call.start_stream(200, {"Content-Type": media.EVENTS, "Cache-Control": "no-cache"})
        try:
            while left is None or left > 0:
                seen, state = await unless_ended(call, pulse.after(seen, read))
                call.check_rights()
                await call.write(b"event: state\ndata: %b\n\n" % json_codec.dump(state))
                left = None if left is None else left - 1
        except StockadeError as refusal:
            await call.write(problems.stream_end(media.EVENTS, problems.document(refusal, call.id)))
    return stream


def _at_ms(write: RefusedWrite) -> int:
    return write.at_ms
