"""Walks the contract: every operation, every status and every code that it documents is answered by the server, or it
is said here why not. The other direction, that nothing else is answered, is checked with every request of these tests.
"""

import asyncio
import hashlib
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from schemathesis.specs.openapi.definitions import OPENAPI_31_VALIDATOR

from stockade.cluster.access.principals import Access, Principal, PrincipalToken, new_token
from stockade.http_api.codec import schemas
from stockade.http_api.codec.parameters import INT64_MAX
from stockade.http_api.contract import served
from stockade.http_api.handlers.stages import StageChanges
from stockade.http_api.handlers.system import ASSETS
from stockade.http_api.reading.decode import body_bytes_max
from stockade.http_api.records import parts
from stockade.partition import refusal_texts
from stockade.partition.api import cluster, ledger, ownership, producers, records, topics
from stockade.partition.api.cluster import Unready
from stockade.partition.api.topics import TopicConfig
from stockade.partition.errors import (
    InsufficientStorage,
    LeaderNotAvailable,
    LedgerFull,
    NotEnoughReplicas,
    RequestTimedOut,
    StorageQuotaExceeded,
    ThrottlingQuotaExceeded,
    Unauthenticated,
)

from .conversation import Answer, Conversation, _resolve, _validator, document, nodes
from .samples import CASES, CODES, GOOD, Request, prepared

SOURCE = Path(__file__).parents[3] / "docs" / "openapi.yaml"
OPERATIONS = {
    operation["operationId"]: operation for methods in document()["paths"].values() for operation in methods.values()
}
TOKENS = "said by a cluster that wants tokens: test_rights.py"
ASKS_NOBODY = "the node answers from what it knows"
NEEDS_STORE = "needs a node with a tiered store: tests/unit/cluster/tiered, tests/integration/test_tiered.py"
ON_REAL_MACHINES = "decided by the controller's machine: tests/unit/cluster"
UNREACHED: dict[tuple[str, int | str], str] = {
    **{(name, status): TOKENS for name in OPERATIONS for status in (401, "UNAUTHENTICATED", "PERMISSION_DENIED")},
    **{("get_cluster", status): ASKS_NOBODY for status in (421, 429, 500, 503, 504)},
    ("begin_at", "FEATURE_LEVEL_TOO_LOW"): "needs a cluster of older software: tests/unit/cluster/replica",
    **{
        (name, 409): "needs a cluster of older software: tests/unit/cluster/leader/test_balancer.py"
        for name in ("get_balance", "balance", "change_balance", "choose_controllers")
    },
    ("list_ledger", 404): "needs a cluster without a ledger: handlers/test_ledger.py",
    ("list_ledger", 409): "needs a cluster of older software: handlers/test_ledger.py",
    ("create_topic", "FEATURE_LEVEL_TOO_LOW"): "needs a cluster of older software: tests/unit/cluster/node",
    ("change_topic", "FEATURE_LEVEL_TOO_LOW"): "needs a cluster of older software: tests/unit/cluster/node",
    ("fetch", "TIERED_STORE_UNAVAILABLE"): NEEDS_STORE,
    ("get_offset", "TIERED_STORE_UNAVAILABLE"): NEEDS_STORE,
    ("read_tail", "TIERED_STORE_UNAVAILABLE"): NEEDS_STORE,
    ("append_parts", 429): "needs a node that has too much in flight: records/test_append_parts.py",
    ("wait_for_news", 429): "needs a node that has too much in flight: records/test_news.py",
    ("append_parts", 500): "a bug of a part is that part's answer: records/test_append_parts.py",
    **{
        (name, 500): "nothing of it can fail"
        for name in ("list_refused_writes", "list_nodes", "list_settings", "list_stalls", "get_caller", "wait_for_news")
    },
    **{
        (name, 503): "said before the node has heard of the principals: tests/integration/test_principals.py"
        for name in ("append_parts", "wait_for_news", "get_caller", "list_nodes", "list_settings", "list_stalls")
    },
    **{
        (name, 503): "said before the node has heard of the principals: tests/integration/test_principals.py"
        for name in ("follow_events", "list_refused_writes")
    },
    ("follow_events", 429): "needs as many followers as a node takes: handlers/test_nodes.py",
    ("follow_events", 500): "nothing of it can fail before the stream begins",
    ("append", "INVALID_PRODUCER_ID_MAPPING"): ON_REAL_MACHINES,
    ("append", "UNKNOWN_PRODUCER_ID"): "needs a producer that was forgotten: tests/unit/partition",
    ("append_stage", "INVALID_PRODUCER_ID_MAPPING"): ON_REAL_MACHINES,
    ("append_stage", "UNKNOWN_PRODUCER_ID"): "needs a producer that was forgotten: tests/unit/partition",
    ("change_stages", "INVALID_PRODUCER_ID_MAPPING"): ON_REAL_MACHINES,
    ("change_stages", "PRODUCER_FENCED"): ON_REAL_MACHINES,
    ("acquire", "INVALID_FENCING_TOKEN"): ON_REAL_MACHINES,
    ("acquire", "WAIT_QUEUE_FULL"): ON_REAL_MACHINES,
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_documented_status_is_answered(name: str) -> None:
    documented = {int(status) for status in OPERATIONS[name]["responses"]}
    good = int(min(OPERATIONS[name]["responses"]))

    async def main() -> None:
        reached = set()
        for status in sorted(documented):
            if status == 403 and _only_denied(name):
                continue
            if (name, status) in UNREACHED and (name, status) not in CASES:
                continue
            answer = await _answered(name, status)
            assert answer.status == status, (name, status, answer.status, answer.body)
            reached.add(status)
        assert good in reached or (name, 201) in CASES

    asyncio.run(main())


@pytest.mark.parametrize(("name", "code"), CODES)
def test_every_code_of_a_status_is_answered(name: str, code: str) -> None:
    async def main() -> None:
        answer = await _after(CODES[name, code])
        assert answer.json["code"] == code

    asyncio.run(main())


def test_every_documented_code_is_answered_or_it_is_said_why_not() -> None:
    common = {
        "INVALID_REQUEST",
        "MESSAGE_TOO_LARGE",
        "UNSUPPORTED_MEDIA_TYPE",
        "NOT_LEADER_OR_FOLLOWER",
        "THROTTLING_QUOTA_EXCEEDED",
        "HEADERS_TOO_LARGE",
        "INTERNAL_ERROR",
        "LEADER_NOT_AVAILABLE",
        "NOT_ENOUGH_REPLICAS",
        "LEDGER_FULL",
        "REQUEST_TIMED_OUT",
        "STORAGE_QUOTA_EXCEEDED",
    }
    missing = []
    for name, operation in OPERATIONS.items():
        for response in operation["responses"].values():
            codes = set(_codes(response)) - common
            if len(codes - {"PERMISSION_DENIED"}) <= 1:
                continue  # the walk over the statuses has met it
            missing += [(name, code) for code in codes if (name, code) not in CODES and (name, code) not in UNREACHED]
    assert not missing, "\n".join(map(str, sorted(missing)))


def _only_denied(name: str) -> bool:
    return set(_codes(OPERATIONS[name]["responses"]["403"])) == {"PERMISSION_DENIED"}


def _codes(response: Any) -> list[str]:
    """Codes of the problems that a response may carry."""
    schema = _problem_of(_resolve(response))
    problems = [_resolve(one) for one in schema.get("anyOf", [schema]) if one]
    return [problem["examples"][0]["code"] for problem in problems]


def _problem_of(response: Any) -> Any:
    return response.get("content", {}).get("application/problem+json", {}).get("schema", {})


async def _answered(name: str, status: int) -> Answer:
    request = GOOD[name]
    if (name, status) in CASES:
        return await _after(CASES[name, status])
    if status == 400:
        request = request._replace(path=request.path + ("&" if "?" in request.path else "?") + "zz=1")
    if status == 413:
        size = body_bytes_max(1 << 20) + 1 if "records" in request.path or name == "put_stage" else (1 << 20) + 1
        size = parts.PARTS_BODY_BYTES_MAX + 1 if name == "append_parts" else size
        request = request._replace(body=b" " * size)
    form = {} if status == 413 and name == "append_parts" else HEADERS.get(status, {})
    request = request._replace(headers={**request.headers, **form})
    if status == 421:
        return await _after([request], of=1)
    return await _after([request], fault=FAULTS.get(status))


HEADERS: dict[int, dict[str, str]] = {
    413: {"Content-Type": "application/json"},
    415: {"Content-Type": "text/html"},
    421: {"Stockade-Forwarded-By": "client"},
    431: {"X": "x" * 9_000, "Y": "x" * 9_000},
}
FAULTS: dict[int, Exception] = {
    429: ThrottlingQuotaExceeded(retry_after_ms=1),
    500: ZeroDivisionError(),
    503: LeaderNotAvailable("none"),
    504: RequestTimedOut("unknown"),
    507: InsufficientStorage(["n1"]),
}


async def _after(requests: list[Request], of: int = 0, fault: Exception | None = None) -> Answer:
    """The answer to the last of some requests, sent to a cluster of two that was prepared; node n1 leads."""
    async with nodes(2) as cluster:
        known = await prepared(cluster[0])
        cluster[0].service.bug = fault
        if isinstance(fault, LeaderNotAvailable):
            cluster[0].service.missing = [Unready("node", "starting", "not registered yet")]
        for request in requests[:-1]:
            await _send(cluster[0], request.filled(known))
        return await _send(cluster[of], requests[-1].filled(known))


async def _send(node: Conversation, request: Request) -> Answer:
    return await node.call(request.method, request.path, request.body, request.headers)


def test_a_refusal_for_too_few_replicas_is_documented_wherever_something_is_proposed() -> None:
    async def main() -> None:
        for name, operation in OPERATIONS.items():
            if "NOT_ENOUGH_REPLICAS" in _codes(operation["responses"].get("503", {})):
                assert (await _after([GOOD[name]], fault=NotEnoughReplicas())).json["code"] == "NOT_ENOUGH_REPLICAS"

    asyncio.run(main())


def test_a_refusal_for_a_full_ledger_is_documented_wherever_something_is_recorded() -> None:
    async def main() -> None:
        names = [name for name, each in OPERATIONS.items() if "LEDGER_FULL" in _codes(each["responses"].get("503", {}))]
        assert len(names) == 16
        for name in names:
            fault = LedgerFull(entries=50_000, retry_after_ms=1000)
            assert (await _after([GOOD[name]], fault=fault)).json["code"] == "LEDGER_FULL"

    asyncio.run(main())


def test_a_refusal_for_a_used_quota_is_documented_wherever_a_batch_is_stored() -> None:
    async def main() -> None:
        fault = StorageQuotaExceeded(quota_bytes=1000, kept_bytes=900)
        for name, each in OPERATIONS.items():
            stores = name in {"append", "append_by_key", "put_stage", "append_stage"}
            assert stores == ("STORAGE_QUOTA_EXCEEDED" in _codes(each["responses"].get("507", {}))), name
            if stores:
                answer = await _after([GOOD[name]], fault=fault)
                assert (answer.status, answer.json["code"], answer.json["kept_bytes"]) == (507, fault.code, 900)

    asyncio.run(main())


def test_the_served_openapi_json_is_made_of_the_yaml() -> None:
    assert (ASSETS / "openapi.json").read_text(encoding="utf-8") == served(SOURCE.read_text(encoding="utf-8"))


def test_the_contract_is_an_openapi_document() -> None:
    assert [(error.instance_path, error.message) for error in OPENAPI_31_VALIDATOR.iter_errors(document())] == []


def test_every_key_of_the_contract_has_a_value() -> None:
    """YAML takes what follows a comma in a text without quotes for one more key, and a schema may have any keys."""
    assert list(_empty(document(), "")) == []


def _empty(node: Any, path: str) -> Iterator[str]:
    if isinstance(node, list):
        for item in node:
            yield from _empty(item, path)
    elif isinstance(node, dict):
        for key, value in node.items():
            if value is None and key != "default":
                yield f"{path}/{key}"
            elif key not in ("example", "examples"):
                yield from _empty(value, f"{path}/{key}")


def test_generators_of_clients_can_make_code_of_the_contract() -> None:
    """What openapi-generator makes of the rest does not compile, or cannot send or read the value: in Go and Java a
    default, a choice or a parameter without a type of its own; in Go a schema ``NewX``, the name of the constructor of
    ``X``, a problem with a member that a later release added, and one of several problems of which ``oneOf`` is right:
    it knows them by their members alone, and not by ``code``."""
    parts = document()["components"]
    assert [name for name in parts["schemas"] if f"New{name}" in parts["schemas"]] == []
    assert [name for name, each in parts["parameters"].items() if "type" not in each["schema"]] == []
    assert list(_without_a_type(parts["schemas"], "", of_a_choice=False)) == []
    problems = {name: schema for name, schema in parts["schemas"].items() if name.startswith("Problem")}
    assert [name for name, schema in problems.items() if schema.get("additionalProperties") is not True] == []
    assert [name for name, each in parts["responses"].items() if "oneOf" in _problem_of(each)] == []


def test_every_integer_that_may_need_more_than_32_bits_says_so() -> None:
    """Generated clients take 32 bits for an integer without a format, and cannot read an answer with a larger one."""
    narrow = [place for place, schema in _schemas(document()["components"], "") if _is_narrow(schema)]
    assert narrow == []


def test_generators_know_the_type_of_every_member_of_a_problem() -> None:
    """openapi-python-client makes no class of an ``allOf`` whose parts say different things of a member, so it could
    read no refusal; and in Go and Java a member with a ``const`` and no type may be anything."""
    schemas = document()["components"]["schemas"]
    common, other = schemas["Problem"]["properties"], []
    for name, schema in schemas.items():
        for part in schema.get("allOf", ()) if name.startswith("Problem") else ():
            own = part.get("properties", {})
            other += [(name, each) for each in own.keys() & common.keys() if _kind(own[each]) != _kind(common[each])]
    assert other == []


def _kind(schema: dict[str, Any]) -> tuple[Any, ...]:
    return schema.get("type"), schema.get("format"), schema.get("items"), "const" in schema


def test_the_code_of_generators_for_a_fixed_value_compiles() -> None:
    """A ``const`` that is no text is a syntax error in what openapi-python-client makes, if the member may be left out,
    and with a type of its own in Java; ``not`` says the same, and no generator looks at it."""
    fixed = [(place, schema) for place, schema in _schemas(document()["components"], "") if "const" in schema]
    assert [place for place, schema in fixed if not place.endswith("/not") and schema.get("type") != "string"] == []


def test_an_integer_with_a_value_of_its_own_says_its_format() -> None:
    """In Java its default is no number of the 64 bits that docs/http.md asks openapi-generator for."""
    schemas = [each for each in _schemas(document()["components"], "") if "integer" in each[1].get("type", ())]
    assert [place for place, schema in schemas if schema.keys() & {"default", "enum"} and "format" not in schema] == []


def test_a_parameter_with_the_name_of_a_schema_has_another_one_in_go() -> None:
    """oapi-codegen makes a type of each, and refused the whole document."""
    parts = document()["components"]
    both = parts["parameters"].keys() & parts["schemas"].keys()
    assert [name for name in both if parts["parameters"][name].get("x-go-name", name) in parts["schemas"]] == []


def test_every_body_of_bytes_says_that_it_is_no_text() -> None:
    """A generated client may decode a text, or encode it as UTF-8: Arrow does not outlive that."""
    everywhere = _schemas(document(), "")
    bytes_ = [(place, schema) for place, schema in everywhere if isinstance(schema.get("contentMediaType"), str)]
    assert len(bytes_) == 5
    assert [place for place, schema in bytes_ if schema.get("format") != "binary"] == []


def test_every_example_of_a_body_fits_its_schema() -> None:
    for place, media in _schemas(document()["paths"], ""):
        if "schema" in media and "example" in media and "application/json" in place:
            _validator(json.dumps(media["schema"])).validate(media["example"])


def _schemas(node: Any, place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """All objects of a part of the document, with their places; not those of its examples."""
    if isinstance(node, dict):
        yield place, node
    for name, member in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        if name not in ("example", "examples"):
            yield from _schemas(member, f"{place}/{name}")


def _is_narrow(schema: dict[str, Any]) -> bool:
    """Whether a generator takes 32 bits for it, though larger numbers fit it."""
    types = schema.get("type", ())
    is_small = schema.get("maximum", math.inf) < 1 << 31 or "enum" in schema
    return "integer" in types and "format" not in schema and not is_small


def _without_a_type(schemas: dict[str, Any], path: str, *, of_a_choice: bool) -> Iterator[str]:
    """The places of schemas without a type that have a default, or are a value in a ``oneOf``."""
    for name, schema in schemas.items():
        place = f"{path}/{name}"
        if "type" not in schema and ("default" in schema or (of_a_choice and schema.keys() & {"const", "enum"})):
            yield place
        yield from _without_a_type(schema.get("properties", {}), place, of_a_choice=False)
        choices = {str(place): choice for place, choice in enumerate(schema.get("oneOf", []))}
        yield from _without_a_type(choices, place, of_a_choice=True)


def test_every_operation_with_a_body_documents_400_413_415_and_431() -> None:
    with_body = {name: each["responses"] for name, each in OPERATIONS.items() if "requestBody" in each}
    assert [name for name, has in with_body.items() if not {"400", "413", "415", "431"} <= has.keys()] == []


def test_every_operation_documents_400_and_431() -> None:
    assert [name for name, operation in OPERATIONS.items() if not {"400", "431"} <= operation["responses"].keys()] == []


def test_every_answer_that_asks_to_wait_documents_for_how_long() -> None:
    answers = [(name, status) for name in OPERATIONS for status in ("429", "503", "507")]
    found = {each: _resolve(OPERATIONS[each[0]]["responses"].get(each[1])) for each in answers}
    assert [each for each, answer in found.items() if answer and "Retry-After" not in answer.get("headers", ())] == []


def test_every_text_of_a_query_has_its_documented_bounds() -> None:
    parameters = document()["components"]["parameters"]
    queries = {name: each["schema"] for name, each in parameters.items() if each["in"] == "query"}
    texts = {name: schema.keys() for name, schema in queries.items() if schema.get("type") == "string"}
    assert [name for name, has in texts.items() if not has & {"maxLength", "pattern", "enum"}] == []


BODIES: dict[str, type[msgspec.Struct]] = {
    "TopicRequest": schemas.NewTopic,
    "TopicPatch": schemas.TopicPatch,
    "TopicConfigPatch": schemas.ConfigChanges,
    "TopicFence": schemas.TopicFence,
    "SessionRequest": schemas.NewSession,
    "GrantRequest": schemas.NewGrant,
    "ProducerRequest": schemas.NewProducer,
    "ProducerFence": schemas.ProducerFence,
    "BeginRequest": schemas.BeginBody,
    "TrimRequest": schemas.TrimBody,
    "NewsRequest": schemas.NewsBody,
    "OwnRequest": schemas.OwnBody,
    "PartList": parts.PartList,
    "PartEntry": parts.PartEntry,
    "PartProducer": parts.PartProducer,
    "PartFence": parts.PartFence,
    "PositionRequest": schemas.NewPosition,
    "StageChanges": StageChanges,
    "MemberChange": schemas.MemberChange,
    "FeatureLevel": schemas.FeatureLevel,
    "BalanceOrder": schemas.BalanceOrder,
    "BalanceChange": schemas.BalanceChange,
    "ControllersChoice": schemas.ControllersChoice,
    "Reassignment": schemas.Reassignment,
    "LeaderTransfer": schemas.LeaderTransfer,
}
ELSEWHERE = {("ProducerRequest", "name"), ("TopicPatch", "sealed"), ("TopicRequest", "replication_factor")}
"""Fields whose limits are checked after the body was read: with a code of their own, or that no type can say."""
LIMITS = ("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "pattern", "enum", "default")


@pytest.mark.parametrize("name", BODIES)
def test_a_body_is_read_as_it_is_documented(name: str) -> None:
    documented = document()["components"]["schemas"][name]
    (read,), definitions = msgspec.json.schema_components([BODIES[name]])
    read = definitions[read["$ref"].rpartition("/")[2]]
    assert set(read["properties"]) == set(documented["properties"])
    assert set(read.get("required", ())) == set(documented.get("required", ()))
    assert documented["additionalProperties"] is False
    for field, schema in documented["properties"].items():
        if (name, field) in ELSEWHERE:
            continue
        assert _limits(read["properties"][field], definitions) == _limits(schema, {}), field


def test_a_new_topics_configuration_is_its_changes_with_the_documented_defaults() -> None:
    """Not the retention: generated clients send each default unasked, and a retention that is given, also the default,
    takes the place of the one that the operator set for new topics."""
    whole, changes = (document()["components"]["schemas"][name] for name in ("TopicConfig", "TopicConfigPatch"))
    defaults = {name: {"default": value} for name, value in msgspec.structs.asdict(TopicConfig()).items()}
    defaults |= {"retention_ms": {}, "retention_bytes": {}}
    assert whole["additionalProperties"] is False
    assert whole["properties"] == {name: schema | defaults[name] for name, schema in changes["properties"].items()}


def test_a_token_that_a_caller_makes_lets_it_in_if_it_has_the_documented_form() -> None:
    """A cluster sees the token's hash alone, and so cannot refuse another form when the principal is put."""
    form = re.compile(document()["components"]["schemas"]["IssuedToken"]["properties"]["token"]["pattern"])
    token = "stk.0a1b2c3d4e5f6071." + "s" * 43
    for text, is_good in ((new_token().token, True), (token, True), (token[:-1], False), (token + "s", False)):
        assert (bool(form.search(text)), _lets_in(text)) == (is_good, is_good)


def _lets_in(token: str) -> bool:
    salt = "ab" * 16
    digest = hashlib.sha256(f"{salt}.{token}".encode()).hexdigest()
    principal = Principal("root", ["all"], [PrincipalToken(f"{token.split('.')[1]}.{salt}.{digest}")])
    access = Access(principals=[principal])
    try:
        return bool(access.caller(f"Bearer {token}", None).principal)
    except Unauthenticated:
        return False


ANSWERS: dict[str, type[msgspec.Struct]] = {
    "AppendAnswer": records.AppendAnswer,
    "OffsetsAnswer": records.Offsets,
    "NewsAnswer": records.News,
    "TrimAnswer": records.Trimmed,
    "Stage": records.StageInfo,
    "RefusedWrites": records.RefusedWrites,
    "NodeStates": cluster.NodeStates,
    "LedgerPage": ledger.LedgerPage,
    "TicketList": ownership.TicketList,
    "PartitionProducers": producers.PartitionProducers,
    "PartitionContents": records.PartitionContents,
    "RemovalPlan": cluster.RemovalPlan,
    "Relocation": cluster.Relocation,
    "BalancePlan": cluster.BalancePlan,
    "BalanceSettings": cluster.BalanceSettings,
    "PlannedMove": cluster.PlannedMove,
    "PlannedTransfer": cluster.PlannedTransfer,
    "ControllersPlan": cluster.ControllersPlan,
    "Stalls": cluster.Stalls,
    "Topic": topics.Topic,
    "TopicList": topics.TopicList,
    "TopicPage": topics.TopicPage,
    "Session": ownership.SessionInfo,
    "Grant": ownership.Grant,
    "Ticket": ownership.Ticket,
    "CancelledTicket": ownership.CancelledTicket,
    "FenceTenure": ownership.FenceTenure,
    "TopicFenced": ownership.TopicFenced,
    "SessionFenced": ownership.SessionFenced,
    "OwnAnswer": ownership.OwnAnswer,
    "Resources": ownership.Resources,
    "Position": ownership.Position,
    "SessionList": ownership.SessionList,
    "GroupList": ownership.GroupList,
    "Producer": producers.ProducerPair,
    "ProducerList": producers.ProducerList,
    "ProducerStatus": producers.ProducerStatus,
    "Cluster": cluster.Cluster,
}


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_that_node_and_client_share_is_the_documented_one(name: str) -> None:
    (made,), definitions = msgspec.json.schema_components([ANSWERS[name]])
    assert _shape(made, definitions) == _shape(document()["components"]["schemas"][name], {})


def test_a_record_of_a_tail_has_fields_of_the_documented_one() -> None:
    documented = document()["components"]["schemas"]["StoredRecord"]["properties"]
    assert set(records.RecordRow.__struct_fields__) == set(documented)


def _shape(schema: Any, definitions: dict[str, Any]) -> Any:
    """Types of a value: an object's members with those that are required, an array's items, null where it may be."""
    schema = definitions.get(schema.get("$ref", "").rpartition("/")[2]) or _resolve(schema)
    if variants := schema.get("anyOf", schema.get("oneOf")):
        shapes = [_shape(variant, definitions) for variant in variants]
        return (*(shape for shape in shapes if shape != ("null",)), "null")
    types = schema.get("type", "string")
    if types == "object" and "properties" in schema:
        required = set(schema.get("required", ()))
        found = {name: _shape(member, definitions) for name, member in schema["properties"].items()}
        return required, {name: shape if name in required else _without_null(shape) for name, shape in found.items()}
    if types == "object":
        return {"any name": _shape(schema.get("additionalProperties", {}), definitions)}
    if types == "array":
        return [_shape(schema["items"], definitions)]
    if isinstance(types, list):
        return (*((each,) for each in sorted(set(types) - {"null"})), "null")
    return (types,)


def _without_null(shape: Any) -> Any:
    """A member that may be left out is None when it is, and null is no other answer."""
    return shape[0] if isinstance(shape, tuple) and shape[-1:] == ("null",) else shape


def _limits(schema: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """The limits of a value, wherever they stand; those that only say "an integer" are left out."""
    if "const" in schema:
        return {"enum": [schema["const"]]}
    schema = definitions.get(schema.get("$ref", "").rpartition("/")[2]) or _resolve(schema)
    found = {key: schema[key] for key in LIMITS if key in schema}
    for part in schema.get("anyOf", schema.get("oneOf", [])):
        found |= _limits(part, definitions)
    if found.get("maximum", 0) >= INT64_MAX:
        del found["maximum"]
    if "pattern" in found:
        found["pattern"] = re.sub(r"\\Z|\$", "", found["pattern"])
    if "enum" in found:
        found["enum"] = sorted(found["enum"], key=str)
    return {key: value for key, value in found.items() if value is not None and value != {}}


ROUTE = re.compile(r"\b(GET|POST|PUT|PATCH|DELETE) (/v1/[\w/-]+)")


def route_of(path: str) -> str:
    """A path with every name in it as ``*``: parameters of the contract, and words in capitals of a text."""
    return re.sub(r"\{\w+\}|(?<=/)[A-Z]+(?=/|$)", "*", path)


def test_every_route_that_a_refusal_names_is_in_the_contract_with_its_method() -> None:
    known = {(method.upper(), route_of(path)) for path, methods in document()["paths"].items() for method in methods}
    named = {
        (method, route_of(path))
        for text in (*refusal_texts.BY_CODE.values(), *refusal_texts.BY_REASON.values())
        for method, path in ROUTE.findall(text.everywhere())
    }
    assert len(named) > 3
    assert named <= known


def test_every_operation_has_a_good_request() -> None:
    assert set(GOOD) == set(OPERATIONS)
    assert {name for name, _ in [*CASES, *CODES, *UNREACHED]} <= set(OPERATIONS)
