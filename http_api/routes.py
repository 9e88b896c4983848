"""Every route; a request for any other path is NOT_FOUND.

``assets/openapi.json`` documents the same set; contract.py makes it, and a test compares the two.
``/docs/problems`` belongs to ``/docs``, ``/console/…`` to ``/``; they are no operations of their own.
"""

from functools import partial

from .fast_path.append import FastAppends
from .fast_path.renew import FastRenewals
from .handlers import (
    cluster,
    console,
    grants,
    groups,
    ledger,
    lists,
    nodes,
    principals,
    producers,
    stages,
    system,
    topics,
)
from .records import handlers
from .records.append_parts import append_parts
from .records.keyed_append import AppendByKey
from .records.news import wait_for_news
from .request.call import Need, Route

_CONSOLE = ("/console/{build}/{file}", "/console/{build}/{folder}/{file}")
UNDOCUMENTED = ("/docs/problems", *_CONSOLE)
"""Paths that the contract documents only as part of another path."""

_TOPIC = "/v1/topics/{topic}"
_PARTITION = _TOPIC + "/partitions/{partition}"
_GROUP = "/v1/groups/{group}"
_POSITION = _GROUP + "/positions/{topic}/{partition}"
_RECORDS = _PARTITION + "/records"
_STAGES = _PARTITION + "/stages"

_SESSION = ("/v1/session", "/v1/sessions/{session}")
"""Paths of the caller's session, which is in a header. The second, deprecated path has the session in itself, for
clients of the release before.
"""

_GUARD = ("group", "fence_epoch")
_FETCH = ("offset", "max_bytes", "min_bytes", "max_wait_ms", "follow", "meta", "origins", "local", *_GUARD, "topic_id")
_LIST = ("prefix", "n")
_TOPICS = ("internal", "find", "held", "first", "n")
_LEDGER = ("from", "n", "topic", "principal", "act", "wait_ms")
_REFUSED = ("n", "everywhere", "topic", "partition")
_TRANSFER_S = 15.0  # longer than a node tries a leadership transfer
_LOOK_S = 30.0  # enough until all nodes have reported or count as away, and the plan of a large cluster is made
_BALANCE = "/v1/cluster/balance"
_PLACING_S = 30.0  # enough until every partition of a new topic has a leader


_READ = (Need("read", "topic", "topic"),)
_READ_GROUP = (Need("read", "group", "group"),)
_COMMIT = (Need("own", "group", "group"), *_READ)
_PRODUCE = (Need("produce", "topic", "topic"),)
_ADMIN_TOPIC = (Need("admin", "topic", "topic"),)
_ADMIN = (Need("admin", "cluster"),)
_TRIM = (Need("trim", "topic", "topic"),)
_SEE = (Need("read", "cluster"),)
_EVICT = (Need("evict", "topic", "topic"),)


def routes() -> list[Route]:
    """The routes of one application."""
    return [*_topics(), *_records(), *_owners(), *_unmetered(), *_principals(), *_cluster(), *_node()]


def _topics() -> list[Route]:
    return [
        Route("GET", "/v1/topics", topics.list_topics, "controller", _TOPICS, needs=()),
        Route(
            "POST",
            "/v1/topics",
            topics.create_topic,
            "controller",
            deadline_s=_PLACING_S,
            needs=(Need("admin", "topic"),),
        ),
        Route("GET", _TOPIC, topics.get_topic, "controller", needs=()),
        Route("GET", _TOPIC + "/partitions", topics.list_partitions, "controller", ("first", "n", "find"), needs=()),
        Route(
            "PATCH", _TOPIC, topics.change_topic, "controller", ("topic_id",), deadline_s=_PLACING_S, needs=_ADMIN_TOPIC
        ),
        Route(
            "DELETE",
            _TOPIC,
            topics.delete_topic,
            "controller",
            ("topic_id", "if_grants"),
            answers_json=False,
            deadline_s=_PLACING_S,
            needs=(Need("admin", "topic"),),
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
            needs=_PRODUCE,
        ),
        Route("POST", "/v1/append", append_parts, "node", answers_json=False, needs=(Need("produce", "topic"),)),
        Route("POST", _TOPIC + "/news", wait_for_news, "node", needs=_READ),
        Route("GET", _RECORDS, handlers.fetch, "partition", _FETCH, answers_json=False, needs=_READ),
        Route("POST", _TOPIC + "/records", by_key.append_by_key, "partition", ("topic_id", "acks"), needs=_PRODUCE),
        Route("GET", _PARTITION + "/offsets", handlers.get_offset, "partition", ("at", "topic_id"), needs=_READ),
        Route("GET", _PARTITION + "/tail", handlers.read_tail, "partition", ("n", "topic_id"), needs=_READ),
        Route("POST", _PARTITION + "/trim", handlers.trim, "partition", ("topic_id",), needs=_TRIM),
        Route("POST", _PARTITION + "/begin", handlers.begin_at, "partition", ("topic_id",), needs=_ADMIN_TOPIC),
        Route("PUT", _STAGES + "/{stage}", stages.put_stage, "partition", ("ttl_ms", "topic_id"), needs=_PRODUCE),
        Route("GET", _STAGES, stages.list_stages, "partition", ("prefix", "topic_id"), needs=_READ),
        Route("PATCH", _STAGES, stages.change_stages, "partition", ("topic_id",), needs=_PRODUCE),
        Route(
            "POST",
            _STAGES + "/{stage}/append",
            stages.append_stage,
            "partition",
            ("fence_epoch", "topic_id"),
            needs=_PRODUCE,
        ),
        Route("GET", _PARTITION + "/fences", handlers.list_fences, "partition", ("topic_id",), needs=_READ),
        Route("GET", _PARTITION + "/contents", handlers.get_contents, "partition", ("n", "topic_id"), needs=_READ),
        Route("GET", _PARTITION + "/producers", handlers.list_producers, "partition", ("n", "topic_id"), needs=_READ),
    ]


def _owners() -> list[Route]:
    return [
        Route("GET", "/v1/sessions", lists.list_sessions, "controller", (*_LIST, "holding", "handle"), needs=_ADMIN),
        Route("GET", "/v1/groups", lists.list_groups, "controller", _LIST, needs=_SEE),
        Route("GET", "/v1/producers", lists.list_producers, "controller", (*_LIST, "internal"), needs=_SEE),
        Route("POST", "/v1/sessions", grants.open_session, "controller", needs=()),
        Route("POST", _TOPIC + "/grants", grants.acquire, "controller", needs=(Need("acquire", "topic", "topic"),)),
        Route("GET", _TOPIC + "/tickets", lists.list_tickets, "controller", ("partition", "n"), needs=_READ),
        Route("POST", _TOPIC + "/fence", grants.fence_topic, "controller", ("topic_id",), needs=_EVICT),
        Route("GET", "/v1/tickets/{ticket}", grants.get_ticket, "controller", ("wait_ms",), needs=()),
        Route("POST", _GROUP + "/own", groups.own, "controller", needs=()),
        Route("GET", _GROUP + "/resources", groups.list_resources, "controller", needs=_READ_GROUP),
        Route("GET", _POSITION, groups.get_position, "partition", needs=(*_READ_GROUP, *_READ)),
        Route("PUT", _POSITION, groups.commit_position, "partition", ("topic_id",), needs=_COMMIT),
        Route("DELETE", _POSITION, groups.forget_position, "partition", ("fence_epoch",), needs=_COMMIT),
        Route("POST", "/v1/producers", producers.init_producer, "controller", needs=(Need("produce", "topic"),)),
        Route("GET", "/v1/producers/{producer}", producers.get_producer, "controller", needs=()),
        Route(
            "POST",
            "/v1/cluster/producer_fences",
            producers.fence_producer,
            "controller",
            needs=(Need("evict", "producer"),),
        ),
        Route("POST", "/v1/cluster/session_fences", grants.fence_session, "controller", needs=_ADMIN),
    ]


def _unmetered() -> list[Route]:
    """Routes that keep alive, or give up, what a caller has: they need the session, and no right (``disown`` checks the
    right on each resource itself), and do not count for quotas.
    """
    route = partial(Route, group="controller", is_metered=False)
    return [
        *(
            route("PUT", path, grants.renew_session, fast=FastRenewals, is_asked_again=True, needs=())
            for path in _SESSION
        ),
        *(route("DELETE", path, grants.close_session, answers_json=False, needs=()) for path in _SESSION),
        route("DELETE", "/v1/tickets/{ticket}", grants.cancel_ticket, needs=()),
        route("DELETE", "/v1/grants/{grant}", grants.release, answers_json=False, needs=()),
        route("DELETE", _GROUP + "/own", groups.disown, repeated=("resource",), needs=()),
    ]


def _principals() -> list[Route]:
    one = "/v1/principals/{principal}"
    tokens = one + "/tokens"
    return [
        Route("GET", "/v1/caller", principals.get_caller, "node", needs=()),
        Route("GET", "/v1/principals", principals.list_principals, "controller", _LIST, needs=_ADMIN),
        Route("GET", one, principals.get_principal, "controller", needs=_ADMIN),
        Route("PUT", one, principals.put_principal, "controller", needs=_ADMIN),
        Route("DELETE", one, principals.delete_principal, "controller", answers_json=False, needs=_ADMIN),
        Route("POST", tokens, principals.add_token, "controller", needs=_ADMIN),
        Route("DELETE", tokens + "/{token}", principals.delete_token, "controller", answers_json=False, needs=_ADMIN),
    ]


def _cluster() -> list[Route]:
    return [
        Route("GET", "/v1/cluster", cluster.get_cluster, "controller", needs=()),
        Route("GET", "/v1/ledger", ledger.list_entries, "partition", _LEDGER, needs=_ADMIN),
        Route("POST", "/v1/cluster/members", cluster.change_members, "controller", needs=_ADMIN),
        Route("POST", "/v1/cluster/feature_level", cluster.raise_feature_level, "controller", needs=_ADMIN),
        Route("GET", "/v1/cluster/backups", cluster.list_backups, "controller", needs=_SEE),
        Route("POST", "/v1/cluster/backups", cluster.note_backup, "controller", needs=_ADMIN),
        Route("GET", _BALANCE, cluster.get_balance, "controller", deadline_s=_LOOK_S, needs=_SEE),
        Route("POST", _BALANCE, cluster.balance, "controller", deadline_s=_LOOK_S, needs=_ADMIN),
        Route("PATCH", _BALANCE, cluster.change_balance, "controller", needs=_ADMIN),
        Route("POST", "/v1/cluster/controllers", cluster.choose_controllers, "controller", needs=_ADMIN),
        Route("POST", "/v1/cluster/reassignments", cluster.reassign, "controller", needs=_ADMIN),
        Route(
            "POST", "/v1/cluster/leaders", cluster.transfer_leader, "controller", deadline_s=_TRANSFER_S, needs=_ADMIN
        ),
    ]


def _node() -> list[Route]:
    return [
        Route("GET", "/v1/nodes", nodes.list_nodes, "node", ("everywhere",), needs=_SEE),
        Route("GET", "/v1/settings", nodes.list_settings, "node", ("everywhere",), needs=_ADMIN),
        Route("GET", "/v1/refused_writes", nodes.list_refused_writes, "node", _REFUSED, needs=_SEE),
        Route("GET", "/v1/events", nodes.follow_events, "node", ("n",), answers_json=False, needs=_SEE),
        Route("GET", "/v1/stalls", system.list_stalls, "node", ("n",), needs=_ADMIN),
        Route("GET", "/healthz", system.healthz, "node", answers_json=False, checks_page=False, needs=None),
        Route("GET", "/readyz", system.readyz, "node", answers_json=False, checks_page=False, needs=None),
        Route("GET", "/readyz/data", system.readyz_data, "node", answers_json=False, checks_page=False, needs=None),
        Route(
            "GET", "/readyz/control", system.readyz_control, "node", answers_json=False, checks_page=False, needs=None
        ),
        Route("GET", "/metrics", system.metrics, "node", answers_json=False, needs=None),
        Route("GET", "/openapi.json", system.openapi, "node", answers_json=False, needs=None),
        Route("GET", "/docs", system.docs, "node", answers_json=False, needs=None),
        Route("GET", "/docs/problems", system.problem_docs, "node", answers_json=False, needs=None),
        Route("GET", "/", console.console, "node", answers_json=False, needs=None),
        *(Route("GET", path, console.console_file, "node", answers_json=False, needs=None) for path in _CONSOLE),
    ]
