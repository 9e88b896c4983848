"""One good request for every operation of the contract, and requests that lead to its other answers.

A case is a list of requests, of which the last has the status. ``{session}`` and the like stand for what ``prepared``
made before.
"""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from stockade.cluster.access.principals import Principal
from stockade.cluster.controller.ledger import Ledger
from stockade.cluster.controller.principals import SavedPrincipals
from stockade.cluster.model import By, Conditions
from stockade.partition.api.ledger import session_handle
from stockade.partition.api.topics import TopicConfig
from stockade.partition.internal_names import LEDGER_TOPIC
from stockade.partition.records.batch import batch_from_columns

from .conversation import Conversation
from .records.test_append import arrow_stream

TOPIC = "/v1/topics/orders"
PARTITION = f"{TOPIC}/partitions/0"
RECORDS = f"{PARTITION}/records"
BODY = {"records": [{"value": "x"}]}
GRANTS = f"{TOPIC}/grants"
POSITION = "/v1/groups/g/positions/orders/0"
SESSION = {"Stockade-Session": "{session}"}
OTHER = {"Stockade-Session": "{other}"}
NOBODY = {"Stockade-Session": "s-nobody"}
EXPIRED = {"Stockade-Session": "{expired}"}
FENCE = SESSION | {"Stockade-Fence-Grant": "{grant}", "Stockade-Fence-Epoch": "1"}
STALE = {"Stockade-Session": "s-9", "Stockade-Fence-Grant": "x", "Stockade-Fence-Epoch": "0"}
STAMP = {"Stockade-Producer-Id": "{pid}", "Stockade-Producer-Epoch": "0", "Stockade-Producer-Seq": "0"}
ARROW_FORM = {"Content-Type": "application/vnd.apache.arrow.stream"}


PARTS_FORM = {"Content-Type": "application/vnd.stockade.parts"}


def parts_body(*parts: tuple[dict[str, Any], bytes], version: Any = 1, behind: bytes = b"") -> bytes:
    """The body of an append to many partitions. A part that names no topic, partition or length has the usual ones."""
    entries = [{"topic": "orders", "partition": 0, "bytes": len(stream)} | entry for entry, stream in parts]
    line = json.dumps({"version": version, "parts": entries}).encode()
    return b"\n".join((line, b"".join(stream for _, stream in parts))) + behind


class Request(NamedTuple):
    """What is sent. ``body`` that is no bytes goes as JSON."""

    method: str
    path: str
    body: Any = None
    headers: Mapping[str, str] = MappingProxyType({})

    def filled(self, known: dict[str, str]) -> "Request":
        """With what is known in place of names in braces."""

        def fill(text: str) -> str:
            for name, value in known.items():
                text = text.replace("{" + name + "}", value)
            return text

        body = self.body
        if isinstance(body, dict):
            # A number has its name in quotes: {"producer_id": "{pid}"}.
            body = json.loads(fill(json.dumps(body).replace('"{pid}"', "{pid}")))
        return Request(self.method, fill(self.path), body, {k: fill(v) for k, v in self.headers.items()})


def get(path: str, **headers: str) -> Request:
    return Request("GET", path, None, headers)


GRANT = {"partitions": [1], "mode": "Exclusive", "producer_name": "p"}
TAKEN = {"partitions": [0], "mode": "Exclusive", "producer_name": "p"}
FETCH = get(RECORDS)
APPEND = Request("POST", RECORDS, BODY, FENCE)
KEYED = Request("POST", "/v1/topics/free/records", BODY)
BEGIN = Request("POST", "/v1/topics/free/partitions/0/begin", {"offset": 0})
TRIM = Request("POST", f"{PARTITION}/trim", {"before": 0}, FENCE)
OWN = Request("POST", "/v1/groups/g/own", {"claims": [{"resource": "printer"}]}, SESSION)
DISOWN = Request("DELETE", "/v1/groups/g/own?resource=printer&resource=b", None, SESSION)
COMMIT = Request("PUT", POSITION, {"offset": 0, "metadata": "m"})
FORGET = Request("DELETE", POSITION)
ACQUIRE = Request("POST", GRANTS, GRANT, OTHER)
RELEASE = Request("DELETE", "/v1/grants/{grant}", None, SESSION)
TICKET = Request("GET", "/v1/tickets/{ticket}", None, OTHER)
FENCE_TOPIC = Request("POST", f"{TOPIC}/fence", {"partitions": "all", "reason": "drill"})
PATCH = Request("PATCH", TOPIC, {"partitions": 3, "config": {"retention_ms": 1000}})
STAGES = f"{PARTITION}/stages"
PUT_STAGE = Request("PUT", f"{STAGES}/fresh", BODY)
CHANGE_STAGES = Request(
    "PATCH", STAGES, {"producer_id": "{pid}", "producer_epoch": 0, "keep": ["staged"], "delete": ["x"]}
)
REFER = Request("POST", f"{STAGES}/staged/append", None, FENCE)
REASSIGN = Request("POST", "/v1/cluster/reassignments", {"topic": "orders", "partition": 0, "replicas": ["n1"]})
RAISE_LEVEL = Request("POST", "/v1/cluster/feature_level", {"level": 2})
TOKEN_HASH = ".".join(("a" * 16, "b" * 32, "c" * 64))
ADMIN = Principal("root", ["all"], certificates=["CN:root"])
NODE = {"action": "add", "node_id": "n9", "url": "http://127.0.0.1:7", "raft_address": "127.0.0.1:8"}
BACKUP = {"place": "s3://b", "name": "one", "cut_ms": 1, "took_ms": 2, "topics": 3, "records": 4, "bytes": 5}
REMOVAL = {"action": "remove", "node_id": "n9"}

GOOD: dict[str, Request] = {
    "list_topics": get("/v1/topics?find=o&first=0&n=5"),
    "create_topic": Request("POST", "/v1/topics", {"name": "fresh"}),
    "get_topic": get(TOPIC),
    "list_partitions": get(f"{TOPIC}/partitions?first=0&n=5&find=0"),
    "change_topic": PATCH,
    "delete_topic": Request("DELETE", TOPIC),
    "append": APPEND,
    "fetch": FETCH,
    "append_by_key": KEYED,
    "append_parts": Request("POST", "/v1/append", parts_body(({"topic": "free"}, arrow_stream([b"a"]))), PARTS_FORM),
    "wait_for_news": Request("POST", f"{TOPIC}/news", {"positions": [{"partition": 0, "offset": 0}], "topic_id": 1}),
    "get_offset": get(f"{PARTITION}/offsets"),
    "read_tail": get(f"{PARTITION}/tail"),
    "trim": TRIM,
    "begin_at": BEGIN,
    "put_stage": PUT_STAGE,
    "list_stages": get(STAGES),
    "change_stages": CHANGE_STAGES,
    "append_stage": REFER,
    "list_fences": get(f"{PARTITION}/fences"),
    "list_partition_producers": get(f"{PARTITION}/producers"),
    "get_contents": get(f"{PARTITION}/contents"),
    "list_tickets": get(f"{TOPIC}/tickets?partition=0&n=5"),
    "list_sessions": get("/v1/sessions?prefix=a&n=5"),
    "list_groups": get("/v1/groups"),
    "list_producers": get("/v1/producers"),
    "open_session": Request("POST", "/v1/sessions", {"client_id": "c"}),
    "renew_session": Request("PUT", "/v1/session", None, SESSION),
    "close_session": Request("DELETE", "/v1/session", None, SESSION),
    "renew_session_by_id": Request("PUT", "/v1/sessions/{session}"),
    "close_session_by_id": Request("DELETE", "/v1/sessions/{session}"),
    "acquire": ACQUIRE,
    "fence_topic": FENCE_TOPIC,
    "get_ticket": TICKET,
    "cancel_ticket": TICKET._replace(method="DELETE"),
    "release": RELEASE,
    "own": OWN,
    "disown": DISOWN,
    "list_resources": get("/v1/groups/g/resources"),
    "get_position": get(POSITION),
    "commit_position": COMMIT,
    "forget_position": FORGET,
    "init_producer": Request("POST", "/v1/producers", {"name": "fresh"}),
    "get_producer": get("/v1/producers/mirror"),
    "list_principals": get("/v1/principals?prefix=b"),
    "get_principal": get("/v1/principals/billing"),
    "put_principal": Request("PUT", "/v1/principals/fresh", {"rights": ["all"], "certificates": ["CN:fresh"]}),
    "delete_principal": Request("DELETE", "/v1/principals/billing"),
    "add_token": Request("POST", "/v1/principals/billing/tokens", {"expires_ms": 1798761600000}),
    "delete_token": Request("DELETE", f"/v1/principals/billing/tokens/{TOKEN_HASH[:16]}"),
    "get_caller": get("/v1/caller"),
    "get_cluster": get("/v1/cluster"),
    "change_members": Request("POST", "/v1/cluster/members", NODE),
    "raise_feature_level": RAISE_LEVEL,
    "get_balance": Request("GET", "/v1/cluster/balance"),
    "balance": Request("POST", "/v1/cluster/balance", {"if_plan": "planned"}),
    "change_balance": Request("PATCH", "/v1/cluster/balance", {"mode": "leaders"}),
    "choose_controllers": Request("POST", "/v1/cluster/controllers", {"node_ids": ["n1"]}),
    "reassign": REASSIGN,
    "transfer_leader": Request("POST", "/v1/cluster/leaders", {"topic": "orders", "partition": 0}),
    "fence_session": Request("POST", "/v1/cluster/session_fences", {"handle": "{handle}", "reason": "hangs"}),
    "fence_producer": Request("POST", "/v1/cluster/producer_fences", {"name": "mirror"}),
    "list_ledger": get("/v1/ledger?n=1&act=topic.create&topic=orders&principal=operators&wait_ms=1"),
    "list_refused_writes": get("/v1/refused_writes?everywhere=true&topic=orders&partition=0"),
    "list_nodes": get("/v1/nodes?everywhere=true"),
    "list_backups": get("/v1/cluster/backups"),
    "note_backup": Request("POST", "/v1/cluster/backups", BACKUP),
    "list_settings": get("/v1/settings?everywhere=true"),
    "follow_events": get("/v1/events?n=1"),
    "list_stalls": get("/v1/stalls"),
    "healthz": get("/healthz"),
    "readyz": get("/readyz"),
    "readyz_data": get("/readyz/data"),
    "readyz_control": get("/readyz/control"),
    "metrics": get("/metrics"),
    "openapi": get("/openapi.json"),
    "docs": get("/docs"),
    "console": get("/"),
}
"""By operationId."""


def _at(request: Request, path: str) -> list[Request]:
    return [request._replace(path=path)]


def _as(request: Request, headers: Mapping[str, str]) -> list[Request]:
    return [request._replace(headers=headers)]


def _with(request: Request, body: Any) -> list[Request]:
    return [request._replace(body=body)]


_INCONSISTENT = {
    name: _at(GOOD[name], GOOD[name].path + "?topic_id=999")
    for name in (
        "change_topic",
        "delete_topic",
        "append",
        "fetch",
        "append_by_key",
        "get_offset",
        "read_tail",
        "trim",
        "begin_at",
        "list_fences",
        "list_partition_producers",
        "get_contents",
        "put_stage",
        "list_stages",
        "change_stages",
        "append_stage",
        "fence_topic",
        "commit_position",
    )
}
_NOWHERE = {
    name: _at(GOOD[name], GOOD[name].path.replace("/orders", "/nowhere").replace("/free", "/nowhere"))
    for name in (
        *_INCONSISTENT,
        "get_topic",
        "list_partitions",
        "list_tickets",
        "acquire",
        "get_position",
        "forget_position",
    )
}
_SESSIONLESS = ("acquire", "get_ticket", "cancel_ticket", "release", "own", "disown", "renew_session")

CASES: dict[tuple[str, int], list[Request]] = {
    **{(name, 409): case for name, case in _INCONSISTENT.items()},
    **{(name, 404): case for name, case in _NOWHERE.items()},
    **{(name, 410): _as(GOOD[name], EXPIRED) for name in _SESSIONLESS},
    **{(name, 404): _as(GOOD[name], NOBODY) for name in _SESSIONLESS if name != "acquire"},
    ("renew_session_by_id", 404): _at(GOOD["renew_session_by_id"], "/v1/sessions/s-nobody"),
    ("renew_session_by_id", 410): _at(GOOD["renew_session_by_id"], "/v1/sessions/{expired}"),
    ("put_principal", 200): [GOOD["put_principal"], GOOD["put_principal"]],
    **{
        (name, 404): _at(GOOD[name], GOOD[name].path.replace("billing", "nobody"))
        for name in ("get_principal", "delete_principal", "add_token", "delete_token")
    },
    ("create_topic", 200): [GOOD["create_topic"], GOOD["create_topic"]],
    ("create_topic", 409): _with(GOOD["create_topic"], {"name": "orders", "partitions": 7}),
    ("append", 202): _at(APPEND, f"{RECORDS}?acks=0"),
    ("append", 400): [Request("POST", RECORDS, b"nonsense", ARROW_FORM)],
    ("append", 403): _as(APPEND, FENCE | {"Stockade-Fence-Epoch": "0"}),
    ("append", 412): _as(APPEND, FENCE | {"Stockade-If-Log-End": "9"}),
    ("append", 423): _as(APPEND, {}),
    ("append", 428): _at(KEYED, "/v1/topics/fenced/partitions/0/records"),
    ("append_by_key", 202): _at(KEYED, KEYED.path + "?acks=0"),
    ("append_by_key", 403): _at(KEYED, "/v1/topics/guarded/records"),
    ("append_by_key", 423): _at(KEYED, "/v1/topics/taken/records"),
    ("append_by_key", 428): _at(KEYED, "/v1/topics/fenced/records"),
    ("fetch", 403): _at(FETCH, RECORDS + "?group=g&fence_epoch=9"),
    ("fetch", 406): _as(FETCH, {"Accept": "text/html"}),
    ("fetch", 410): [APPEND, TRIM._replace(body={"before": -1}), get(RECORDS + "?offset=0")],
    ("fetch", 416): _at(FETCH, RECORDS + "?offset=99"),
    ("trim", 403): _as(TRIM, FENCE | {"Stockade-Fence-Epoch": "0"}),
    ("trim", 412): _with(TRIM, {"before": 0, "if_epoch": 9}),
    ("fence_topic", 412): _with(FENCE_TOPIC, {"partitions": "all", "if_grants": ["g-none"]}),
    ("delete_topic", 412): _at(GOOD["delete_topic"], f"{TOPIC}?if_grants=0"),
    ("change_members", 200): _with(GOOD["change_members"], REMOVAL | {"dry_run": True}),
    ("note_backup", 409): _with(GOOD["note_backup"], {**BACKUP, "place": "level 1"}),
    ("balance", 412): _with(GOOD["balance"], {"if_plan": "0"}),
    ("choose_controllers", 200): _with(GOOD["choose_controllers"], {"node_ids": ["n1"], "dry_run": True}),
    ("choose_controllers", 404): _with(GOOD["choose_controllers"], {"node_ids": ["x1"]}),
    ("choose_controllers", 412): _with(GOOD["choose_controllers"], {"node_ids": ["n1"], "if_plan": "0"}),
    ("change_members", 412): _with(GOOD["change_members"], REMOVAL | {"if_plan": "0"}),
    ("begin_at", 412): [KEYED, BEGIN],
    ("begin_at", 423): _at(BEGIN, "/v1/topics/taken/partitions/0/begin"),
    ("begin_at", 428): _at(BEGIN, "/v1/topics/fenced/partitions/0/begin"),
    ("trim", 416): _with(TRIM, {"before": 99}),
    ("trim", 423): _as(TRIM, {}),
    ("trim", 428): _at(TRIM._replace(headers={}), "/v1/topics/fenced/partitions/0/trim"),
    ("acquire", 202): _with(ACQUIRE, TAKEN | {"mode": "WaitForExclusive"}),
    ("acquire", 403): _with(ACQUIRE, GRANT | {"resume_epoch": 0, "producer_name": "stale"}),
    ("acquire", 409): _with(ACQUIRE, GRANT | {"producer_name": "holder"}),
    ("acquire", 423): _with(ACQUIRE, TAKEN),
    ("get_ticket", 403): _at(TICKET, "/v1/tickets/t-fenced"),
    ("cancel_ticket", 403): _as(GOOD["cancel_ticket"], SESSION),
    ("release", 403): _as(RELEASE, OTHER),
    ("own", 409): [OWN, OWN._replace(headers=OTHER)],
    ("disown", 403): [OWN, DISOWN._replace(headers=OTHER)],
    ("commit_position", 403): [
        OWN._replace(body={"claims": [{"resource": "orders/0"}]}),
        COMMIT._replace(body={"offset": 0, "fence_epoch": 9}),
    ],
    ("forget_position", 403): [OWN._replace(body={"claims": [{"resource": "orders/0"}]}), FORGET],
    ("forget_position", 409): _at(FORGET, POSITION.replace("/g/", "/new/")),
    ("commit_position", 416): _with(COMMIT, {"offset": 99}),
    ("init_producer", 403): _with(GOOD["init_producer"], {"name": "mirror", "producer_id": 99, "producer_epoch": 0}),
    ("get_producer", 404): _at(GOOD["get_producer"], "/v1/producers/nobody"),
    ("change_members", 404): _with(GOOD["change_members"], {"action": "remove", "node_id": "x1"})
    + _with(GOOD["change_members"], {"action": "remove", "zone": "x1"}),
    ("raise_feature_level", 409): _with(RAISE_LEVEL, {"level": 3}),
    ("reassign", 404): _with(REASSIGN, REASSIGN.body | {"replicas": ["x1"]}),
    ("transfer_leader", 404): _with(GOOD["transfer_leader"], {"topic": "orders", "partition": 0, "node_id": "x1"}),
    ("fence_session", 404): _with(GOOD["fence_session"], {"handle": "0" * 16}),
    ("fence_session", 409): _with(GOOD["fence_session"], {"handle": "1" * 16}),
    ("fence_session", 412): _with(GOOD["fence_session"], {"handle": "{handle}", "if_grants": "0" * 16}),
    ("fence_producer", 404): _with(GOOD["fence_producer"], {"name": "nobody"}),
    ("put_stage", 200): [PUT_STAGE, PUT_STAGE],
    ("change_stages", 403): _with(CHANGE_STAGES, {"producer_id": 1001, "producer_epoch": 9}),
    ("append_stage", 403): _as(REFER, STALE),
    ("append_stage", 412): _as(REFER, FENCE | {"Stockade-If-Log-End": "99"}),
    ("append_stage", 423): _as(REFER, {}),
    ("append_stage", 428): _at(REFER._replace(headers={}), "/v1/topics/fenced/partitions/0/stages/staged/append"),
}
"""By operationId and status; answers that all operations can give in the same way are not here."""

CODES: dict[tuple[str, str], list[Request]] = {
    ("append", "INVALID_RECORD"): _with(APPEND, {"records": []}),
    ("append", "CORRUPT_MESSAGE"): [Request("POST", RECORDS, arrow_stream([b"a"])[:-9], ARROW_FORM)],
    ("append", "INVALID_FENCING_TOKEN"): _as(APPEND, FENCE | {"Stockade-Fence-Epoch": "9"}),
    ("append", "PRODUCER_FENCED"): CASES["append", 403],
    ("append", "INCONSISTENT_TOPIC_ID"): CASES["append", 409],
    ("append", "NOT_OWNER"): _at(KEYED, "/v1/topics/guarded/partitions/0/records?fence_epoch=1"),
    ("append", "INVALID_PRODUCER_EPOCH"): [
        APPEND._replace(headers=FENCE | STAMP | {"Stockade-Producer-Epoch": "1"}),
        APPEND._replace(headers=FENCE | STAMP),
    ],
    ("append", "TOPIC_SEALED"): [
        Request("PATCH", "/v1/topics/free", {"sealed": True}),
        Request("POST", "/v1/topics/free/partitions/0/records", BODY),
    ],
    ("append", "OUT_OF_ORDER_SEQUENCE_NUMBER"): _as(APPEND, FENCE | STAMP | {"Stockade-Producer-Seq": "7"}),
    ("append_by_key", "INCONSISTENT_TOPIC_ID"): CASES["append_by_key", 409],
    ("append_by_key", "CORRUPT_MESSAGE"): [KEYED._replace(body=b"nonsense", headers=ARROW_FORM)],
    ("append_by_key", "INVALID_FENCING_TOKEN"): _as(KEYED, STALE | {"Stockade-Fence-Epoch": "9"}),
    ("append_by_key", "NOT_OWNER"): CASES["append_by_key", 403],
    ("append_by_key", "PRODUCER_FENCED"): [KEYED._replace(path="/v1/topics/taken/records", headers=STALE)],
    ("append_by_key", "TOPIC_SEALED"): [Request("PATCH", "/v1/topics/free", {"sealed": True}), KEYED],
    ("append_by_key", "INVALID_RECORD"): _with(KEYED, {"records": []}),
    ("put_stage", "INVALID_RECORD"): _with(PUT_STAGE, {"records": []}),
    ("put_stage", "CORRUPT_MESSAGE"): [PUT_STAGE._replace(body=arrow_stream([b"a"])[:-9], headers=ARROW_FORM)],
    ("put_stage", "STAGE_ALREADY_EXISTS"): [PUT_STAGE, PUT_STAGE._replace(body={"records": [{"value": "other"}]})],
    ("put_stage", "INCONSISTENT_TOPIC_ID"): CASES["put_stage", 409],
    ("put_stage", "TOPIC_SEALED"): [
        Request("PATCH", "/v1/topics/free", {"sealed": True}),
        PUT_STAGE._replace(path="/v1/topics/free/partitions/0/stages/fresh"),
    ],
    ("change_stages", "INVALID_PRODUCER_EPOCH"): CASES["change_stages", 403],
    ("change_stages", "UNKNOWN_TOPIC_OR_PARTITION"): CASES["change_stages", 404],
    ("change_stages", "NOT_FOUND"): _with(CHANGE_STAGES, CHANGE_STAGES.body | {"keep": ["staged", "gone"]}),
    ("change_stages", "INCONSISTENT_TOPIC_ID"): CASES["change_stages", 409],
    ("append_stage", "UNKNOWN_TOPIC_OR_PARTITION"): CASES["append_stage", 404],
    ("append_stage", "NOT_FOUND"): _at(REFER, f"{STAGES}/gone/append"),
    ("append_stage", "INVALID_FENCING_TOKEN"): _as(REFER, FENCE | {"Stockade-Fence-Epoch": "9"}),
    ("append_stage", "PRODUCER_FENCED"): CASES["append_stage", 403],
    ("append_stage", "INCONSISTENT_TOPIC_ID"): CASES["append_stage", 409],
    ("append_stage", "NOT_OWNER"): _at(
        REFER._replace(headers={}), "/v1/topics/guarded/partitions/0/stages/staged/append?fence_epoch=1"
    ),
    ("append_stage", "INVALID_PRODUCER_EPOCH"): [
        APPEND._replace(headers=FENCE | STAMP | {"Stockade-Producer-Epoch": "1"}),
        REFER._replace(headers=FENCE | STAMP),
    ],
    ("append_stage", "TOPIC_SEALED"): [
        Request("PATCH", "/v1/topics/free", {"sealed": True}),
        REFER._replace(path="/v1/topics/free/partitions/0/stages/staged/append", headers={}),
    ],
    ("append_stage", "OUT_OF_ORDER_SEQUENCE_NUMBER"): _as(REFER, FENCE | STAMP | {"Stockade-Producer-Seq": "7"}),
    ("begin_at", "INCONSISTENT_TOPIC_ID"): CASES["begin_at", 409],
    ("create_topic", "TOPIC_ALREADY_EXISTS"): CASES["create_topic", 409],
    ("change_topic", "INCONSISTENT_TOPIC_ID"): CASES["change_topic", 409],
    ("begin_at", "TOPIC_SEALED"): [Request("PATCH", "/v1/topics/free", {"sealed": True}), BEGIN],
    ("trim", "INVALID_FENCING_TOKEN"): _as(TRIM, FENCE | {"Stockade-Fence-Epoch": "9"}),
    ("acquire", "UNKNOWN_TOPIC_OR_PARTITION"): CASES["acquire", 404],
    ("acquire", "INCONSISTENT_TOPIC_ID"): _with(ACQUIRE, GRANT | {"topic_id": 999}),
    ("acquire", "HOLD_AND_WAIT"): CASES["acquire", 409],
    ("get_ticket", "UNKNOWN_SESSION"): CASES["get_ticket", 404],
    ("acquire", "UNKNOWN_SESSION"): _as(ACQUIRE, NOBODY),
    ("get_ticket", "NOT_FOUND"): _at(TICKET, "/v1/tickets/t-nothing"),
    ("reassign", "NOT_FOUND"): CASES["reassign", 404],
    ("transfer_leader", "NOT_FOUND"): CASES["transfer_leader", 404],
    ("transfer_leader", "UNKNOWN_TOPIC_OR_PARTITION"): _with(
        GOOD["transfer_leader"], {"topic": "nowhere", "partition": 0}
    ),
    ("reassign", "UNKNOWN_TOPIC_OR_PARTITION"): _with(REASSIGN, REASSIGN.body | {"topic": "nowhere"}),
}
"""By operationId and code, where one status has several."""


async def keep_ledger(node: Conversation) -> list[bytes]:
    """A ledger with two entries; their bytes."""
    ledger = Ledger()
    ledger.begin()
    ledger.record("topic.create", by=By("operators", request="r", client="::1"), topic="orders", topic_id=1)
    await node.service.create_topic(LEDGER_TOPIC, 1, None, TopicConfig())
    _, entries = ledger.oldest(9, 1 << 20)
    batch = batch_from_columns([None] * 2, entries, None, None, now_ms=1, batch_bytes_max=1 << 20)
    partition = node.service.held(LEDGER_TOPIC, 0)
    assert partition is not None
    await partition.append(batch, Conditions())
    return entries


async def prepared(node: Conversation) -> dict[str, str]:
    """Topics and identities that the requests speak of; their names and ids."""
    await node.topic("orders", 2)
    await node.topic("free")
    await node.topic("taken")
    await node.topic("fenced", require_fence=True)
    await node.topic("guarded", writer_group="g")

    async def made(request: Request, name: str) -> str:
        answer = await node.call(request.method, request.path, request.body, request.headers)
        return str(answer.json[name])

    opening = GOOD["open_session"]
    known = {name: await made(opening, "session") for name in ("session", "other", "expired")}
    node.service.shared.expired.add(known["expired"])
    known["handle"] = session_handle(known["session"])
    for topic in ("orders", "taken"):
        taking = Request("POST", f"/v1/topics/{topic}/grants", TAKEN, SESSION).filled(known)
        known.setdefault("grant", await made(taking, "grant"))
    waiting = Request("POST", GRANTS, TAKEN | {"mode": "WaitForExclusive"}, OTHER).filled(known)
    known["ticket"] = await made(waiting, "ticket")
    await made(Request("POST", "/v1/producers", {"name": "mirror"}), "producer_id")
    billing = {"rights": ["produce topic:invoices-*"], "tokens": [{"hash": TOKEN_HASH}]}
    node.service.shared.registered.load(SavedPrincipals(1, [ADMIN]))
    await made(Request("PUT", "/v1/principals/billing", billing), "principal")
    await made(PUT_STAGE._replace(path=f"{STAGES}/staged"), "stage")
    await keep_ledger(node)
    known["pid"] = await made(Request("POST", "/v1/producers", {}), "producer_id")
    return known
