"""Every route; a request for any other path is NOT_FOUND.

``assets/openapi.json`` documents the same set; contract.py makes it, and a test compares the two.
``/docs/problems`` belongs to ``/docs`` and is not an operation of its own.
"""

from .fast_path.append import FastAppends
from .fast_path.renew import FastRenewals
from .handlers import cluster, grants, groups, lists, producers, stages, system, topics
from .records import handlers
from .records.append_parts import append_parts
from .records.keyed_append import AppendByKey
from .request.call import Route

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
_TRANSFER_S = 15.0  # a node gives up a leadership transfer sooner
_PLACING_S = 30.0  # until every partition of a new topic has a leader


def routes() -> list[Route]:
    """The routes of one application."""
    return [*_topics(), *_records(), *_owners(), *_cluster(), *_node()]


def _topics() -> list[Route]:
    return [
        Route("GET", "/v1/topics", topics.list_topics, "controller", ("internal",), needs="read"),
        Route("POST", "/v1/topics", topics.create_topic, "controller", deadline_s=_PLACING_S),
        Route("GET", _TOPIC, topics.get_topic, "controller", needs="read"),
        Route("PATCH", _TOPIC, topics.change_topic, "controller", ("topic_id",), deadline_s=_PLACING_S),
        Route(
            "DELETE",
            _TOPIC,
            topics.delete_topic,
            "controller",
            ("topic_id",),
            answers_json=False,
            deadline_s=_PLACING_S,
        ),
    ]


def _records() -> list[Route]:
    by_key = AppendByKey()
    return [
        Route(
            "POST",
            _RECORDS,
            handlers.append,
            "partition",
            ("fence_epoch", "topic_id", "acks"),
            fast=FastAppends,
            needs="write",
        ),
        Route("POST", "/v1/append", append_parts, "node", answers_json=False, needs="write"),
        Route("GET", _RECORDS, handlers.fetch, "partition", _FETCH, answers_json=False, needs="read"),
        Route("POST", _TOPIC + "/records", by_key.append_by_key, "partition", ("topic_id", "acks"), needs="write"),
        Route("GET", _PARTITION + "/offsets", handlers.get_offset, "partition", ("at", "topic_id"), needs="read"),
        Route("GET", _PARTITION + "/tail", handlers.read_tail, "partition", ("n", "topic_id"), needs="read"),
        Route("POST", _PARTITION + "/trim", handlers.trim, "partition", ("topic_id",), needs="write"),
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
        Route("GET", _PARTITION + "/fences", handlers.list_fences, "partition", ("topic_id",), needs="read"),
    ]


def _owners() -> list[Route]:
    return [
        # A session id is a credential, so its list is for admins.
        Route("GET", "/v1/sessions", lists.list_sessions, "controller", _LIST),
        Route("GET", "/v1/groups", lists.list_groups, "controller", _LIST, needs="read"),
        Route("GET", "/v1/producers", lists.list_producers, "controller", (*_LIST, "internal"), needs="read"),
        Route("POST", "/v1/sessions", grants.open_session, "controller", needs="read"),
        Route(
            "PUT",
            "/v1/sessions/{session}",
            grants.renew_session,
            "controller",
            fast=FastRenewals,
            needs="read",
        ),
        Route("DELETE", "/v1/sessions/{session}", grants.close_session, "controller", answers_json=False, needs="read"),
        Route("POST", _TOPIC + "/grants", grants.acquire, "controller", needs="write"),
        Route("POST", _TOPIC + "/fence", grants.fence_topic, "controller", ("topic_id",)),
        Route("GET", "/v1/tickets/{ticket}", grants.get_ticket, "controller", ("wait_ms",), needs="read"),
        Route("DELETE", "/v1/tickets/{ticket}", grants.cancel_ticket, "controller", needs="write"),
        Route("DELETE", "/v1/grants/{grant}", grants.release, "controller", answers_json=False, needs="write"),
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
        Route("POST", "/v1/cluster/leaders", cluster.transfer_leader, "controller", deadline_s=_TRANSFER_S),
    ]


def _node() -> list[Route]:
    return [
        Route("GET", "/v1/refused_writes", system.list_refused_writes, "node", ("n",), needs="read"),
        Route("GET", "/healthz", system.healthz, "node", answers_json=False, needs=None),
        Route("GET", "/readyz", system.readyz, "node", answers_json=False, needs=None),
        Route("GET", "/metrics", system.metrics, "node", answers_json=False, needs=None),
        Route("GET", "/openapi.json", system.openapi, "node", answers_json=False, needs=None),
        Route("GET", "/docs", system.docs, "node", answers_json=False, needs=None),
        Route("GET", "/docs/problems", system.problem_docs, "node", answers_json=False, needs=None),
        Route("GET", "/", system.console, "node", answers_json=False, needs=None),
    ]
