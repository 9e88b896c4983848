"""Every route, and nothing else: what is not here is NOT_FOUND.

``assets/openapi.json`` documents the same set; contract.py makes it, and a test compares the two.
``/docs/problems`` belongs to ``/docs`` and is not an operation of its own.
"""

from . import admin, appending, cluster, fencing, groups, listing, pages, producers, records, renewing, stages
from .call import Route
from .keyed import KeyedAppend

UNDOCUMENTED = ("/docs/problems",)
"""Paths that the contract knows only as part of another."""

_TOPIC = "/v1/topics/{topic}"
_PARTITION = _TOPIC + "/partitions/{partition}"
_GROUP = "/v1/groups/{group}"
_POSITION = _GROUP + "/positions/{topic}/{partition}"
_RECORDS = _PARTITION + "/records"
_STAGES = _PARTITION + "/stages"

_GUARD = ("group", "fence_epoch")
_FETCH = ("offset", "max_bytes", "min_bytes", "max_wait_ms", "follow", "meta", "origins", "local", *_GUARD, "topic_id")
_LIST = ("prefix", "n")
_HANDOVER_S = 15.0  # a node gives up handing over sooner
_PLACING_S = 30.0  # until every partition of a new topic has a leader


def routes() -> list[Route]:
    """The routes of one application."""
    return [*_topics(), *_owners(), *_cluster(), *_node()]


def _topics() -> list[Route]:
    return [
        Route("GET", "/v1/topics", admin.list_topics, "controller", needs="read"),
        Route("POST", "/v1/topics", admin.create_topic, "controller", deadline_s=_PLACING_S),
        Route("GET", _TOPIC, admin.get_topic, "controller", needs="read"),
        Route("PATCH", _TOPIC, admin.change_topic, "controller", ("topic_id",), deadline_s=_PLACING_S),
        Route(
            "DELETE", _TOPIC, admin.delete_topic, "controller", ("topic_id",), answers_json=False, deadline_s=_PLACING_S
        ),
        Route(
            "POST",
            _RECORDS,
            records.append,
            "partition",
            ("fence_epoch", "topic_id", "acks"),
            is_frequent=True,
            shorten=appending.shortened,
            needs="write",
        ),
        Route("GET", _RECORDS, records.fetch, "partition", _FETCH, answers_json=False, needs="read"),
        Route("POST", _TOPIC + "/records", KeyedAppend(), "partition", ("topic_id", "acks"), needs="write"),
        Route("GET", _PARTITION + "/offsets", records.get_offset, "partition", ("at", "topic_id"), needs="read"),
        Route("GET", _PARTITION + "/tail", records.read_tail, "partition", ("n", "topic_id"), needs="read"),
        Route("POST", _PARTITION + "/trim", records.trim, "partition", ("topic_id",), needs="write"),
        Route("PUT", _STAGES + "/{stage}", stages.put_stage, "partition", ("ttl_ms", "topic_id"), needs="write"),
        Route("GET", _STAGES, stages.list_stages, "partition", ("prefix", "topic_id"), needs="read"),
        Route("PATCH", _STAGES, stages.change_stages, "partition", ("topic_id",), needs="write"),
        Route(
            "POST",
            _STAGES + "/{stage}/append",
            stages.append_stage,
            "partition",
            ("fence_epoch", "topic_id"),
            needs="write",
        ),
        Route("GET", _PARTITION + "/fences", records.list_fences, "partition", ("topic_id",), needs="read"),
    ]


def _owners() -> list[Route]:
    return [
        # Whoever knows a session can act for it.
        Route("GET", "/v1/sessions", listing.list_sessions, "controller", _LIST),
        Route("GET", "/v1/groups", listing.list_groups, "controller", _LIST, needs="read"),
        Route("GET", "/v1/producers", listing.list_producers, "controller", _LIST, needs="read"),
        Route("POST", "/v1/sessions", fencing.open_session, "controller", needs="read"),
        Route(
            "PUT",
            "/v1/sessions/{session}",
            fencing.renew_session,
            "controller",
            is_frequent=True,
            needs="read",
            shorten=renewing.shortened,
        ),
        Route(
            "DELETE", "/v1/sessions/{session}", fencing.close_session, "controller", answers_json=False, needs="read"
        ),
        Route("POST", _TOPIC + "/grants", fencing.acquire, "controller", needs="write"),
        Route("POST", _TOPIC + "/fence", fencing.fence_topic, "controller", ("topic_id",)),
        Route("GET", "/v1/tickets/{ticket}", fencing.get_ticket, "controller", ("wait_ms",), needs="read"),
        Route("DELETE", "/v1/tickets/{ticket}", fencing.cancel_ticket, "controller", needs="write"),
        Route("DELETE", "/v1/grants/{grant}", fencing.release, "controller", answers_json=False, needs="write"),
        Route("POST", _GROUP + "/own", groups.own, "controller", needs="read"),
        Route("DELETE", _GROUP + "/own", groups.disown, "controller", repeated=("resource",), needs="read"),
        Route("GET", _GROUP + "/resources", groups.list_resources, "controller", needs="read"),
        Route("GET", _POSITION, groups.get_position, "partition", needs="read"),
        Route("PUT", _POSITION, groups.commit_position, "partition", needs="read"),
        Route("POST", "/v1/producers", producers.init_producer, "controller", needs="write"),
        Route("GET", "/v1/producers/{producer}", producers.get_producer, "controller", needs="read"),
        Route("POST", "/v1/cluster/producer_fences", producers.fence_producer, "controller"),
    ]


def _cluster() -> list[Route]:
    return [
        Route("GET", "/v1/cluster", cluster.get_cluster, "controller", needs="read"),
        Route("POST", "/v1/cluster/members", cluster.change_members, "controller"),
        Route("POST", "/v1/cluster/reassignments", cluster.reassign, "controller"),
        Route("POST", "/v1/cluster/leaders", cluster.transfer_leader, "controller", deadline_s=_HANDOVER_S),
    ]


def _node() -> list[Route]:
    return [
        Route("GET", "/v1/refused_writes", pages.refused_writes, "node", ("n",), needs="read"),
        Route("GET", "/healthz", pages.healthz, "node", answers_json=False, needs=None),
        Route("GET", "/readyz", pages.readyz, "node", answers_json=False, needs=None),
        Route("GET", "/metrics", pages.metrics, "node", answers_json=False, needs=None),
        Route("GET", "/openapi.json", pages.openapi, "node", answers_json=False, needs=None),
        Route("GET", "/docs", pages.docs, "node", answers_json=False, needs=None),
        Route("GET", "/docs/problems", pages.problem_docs, "node", answers_json=False, needs=None),
        Route("GET", "/", pages.console, "node", answers_json=False, needs=None),
    ]
