"""Requests made up from the contract itself, good ones and bad ones: each is answered as the contract says.

FUZZ_FACTOR multiplies the number of requests: ``make fuzz``.
"""

import os
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from .conversation import ARROW, NDJSON, Conversation, document
from .node_in_thread import serving
from .samples import PARTS_FORM, prepared

FACTOR = int(os.environ.get("FUZZ_FACTOR", "1"))
EXAMPLES = 8 * FACTOR
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
WAIT_MS_MAX = 5

REFUSED = ["400", "401", "403", "404", "405", "406", "409", "410", "412", "413", "415", "416", "423", "428", "431"]
"""Something else may be wrong with a request that is not well-formed, and may be found first."""

config = schemathesis.Config.from_dict(
    {
        "checks": {"negative_data_rejection": {"expected-statuses": REFUSED}},
        "phases": {"coverage": {"enabled": FACTOR > 1}},
    }
)
schema = schemathesis.openapi.from_dict(document(), config=config)


@schemathesis.serializer(NDJSON["Content-Type"], ARROW["Content-Type"], PARTS_FORM["Content-Type"])
def as_bytes(context: Any, value: Any) -> bytes:
    """Bodies that are no JSON: whatever was made up."""
    return value if isinstance(value, bytes) else str(value).encode(errors="replace")


def is_patient(case: Any) -> bool:
    """Whether a request follows, or waits: that has tests of its own."""
    query, body = case.query or {}, case.body if isinstance(case.body, dict) else {}
    waits = [query.get("wait_ms"), query.get("max_wait_ms"), body.get("wait_ms")]
    follows = case.path == "/v1/events" or str(query.get("follow")).lower() == "true"
    return follows or any(_number(wait) > WAIT_MS_MAX for wait in waits)


def _number(value: Any) -> int:
    return int(value) if isinstance(value, int) or str(value).isdecimal() else 0


@pytest.fixture(scope="module")
def node() -> Iterator[tuple[Conversation, dict[str, str]]]:
    with serving(prepared) as found:
        yield found


@schema.parametrize()
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), derandomize=FACTOR == 1)
def test_the_server_answers_as_the_contract_says(case: Any, node: tuple[Conversation, dict[str, str]]) -> None:
    served, _ = node
    if is_patient(case):
        return
    case.call_and_validate(base_url=served.url, checks=CHECKS, timeout=10)
