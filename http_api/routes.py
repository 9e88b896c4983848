"""Every route of this version, and nothing else: what is not here is NOT_FOUND.

``assets/openapi.json`` documents the same set; contract.py makes it, and a test compares the two.
``/docs/problems`` belongs to ``/docs`` and is not an operation of its own.
"""

from . import admin, cluster, fencing, pages, records
from .call import Route
from .keyed import KeyedAppend

UNDOCUMENTED = ("/docs/problems",)
"""Paths that the contract knows only as part of another."""

_TOPIC = "/v1/topics/{topic}"
_PARTITION = _TOPIC + "/partitions/{partition}"
_RECORDS = _PARTITION + "/records"

_FETCH = ("offset", "max_bytes", "min_bytes", "max_wait_ms", "follow", "meta", "local", "topic_id")
_HANDOVER_S = 15.0  # a node gives up handing over sooner
_PLACING_S = 30.0  # until every partition of a new topic has a leader


def routes() -> list[Route]:
    """The routes of one application."""
    return [
        Route("GET", "/v1/topics", admin.list_topics, "controller"),
        Route("POST", "/v1/topics", admin.create_topic, "controller", deadline_s=_PLACING_S),
        Route("GET", _TOPIC, admin.get_topic, "controller"),
        Route(
            "DELETE", _TOPIC, admin.delete_topic, "controller", ("topic_id",), answers_json=False, deadline_s=_PLACING_S
        ),
        Route("POST", _RECORDS, records.append, "partition", ("topic_id", "acks")),
        Route("GET", _RECORDS, records.fetch, "partition", _FETCH, answers_json=False),
        Route("POST", _TOPIC + "/records", KeyedAppend(), "partition", ("topic_id", "acks")),
        Route("GET", _PARTITION + "/offsets", records.get_offset, "partition", ("at", "topic_id")),
        Route("GET", _PARTITION + "/tail", records.read_tail, "partition", ("n", "topic_id")),
        Route("POST", "/v1/sessions", fencing.open_session, "controller"),
        Route("PUT", "/v1/sessions/{session}", fencing.renew_session, "controller"),
        Route("DELETE", "/v1/sessions/{session}", fencing.close_session, "controller", answers_json=False),
        Route("POST", _TOPIC + "/grants", fencing.acquire, "controller"),
        Route("GET", "/v1/tickets/{ticket}", fencing.get_ticket, "controller", ("wait_ms",)),
        Route("DELETE", "/v1/grants/{grant}", fencing.release, "controller", answers_json=False),
        Route("POST", "/v1/producers", fencing.init_producer, "controller"),
        Route("GET", "/v1/cluster", cluster.get_cluster, "controller"),
        Route("POST", "/v1/cluster/members", cluster.change_members, "controller"),
        Route("POST", "/v1/cluster/reassignments", cluster.reassign, "controller"),
        Route("POST", "/v1/cluster/leaders", cluster.transfer_leader, "controller", deadline_s=_HANDOVER_S),
        Route("GET", "/healthz", pages.healthz, "node", answers_json=False),
        Route("GET", "/readyz", pages.readyz, "node", answers_json=False),
        Route("GET", "/metrics", pages.metrics, "node", answers_json=False),
        Route("GET", "/openapi.json", pages.openapi, "node", answers_json=False),
        Route("GET", "/docs", pages.docs, "node", answers_json=False),
        Route("GET", "/docs/problems", pages.problem_docs, "node", answers_json=False),
        Route("GET", "/", pages.console, "node", answers_json=False),
    ]
