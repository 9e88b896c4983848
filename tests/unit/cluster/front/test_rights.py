"""Bearer tokens: who may do what."""

import hashlib

import pytest

from stockade.cluster.front.front import Right, Rights
from stockade.partition.errors import PermissionDenied, Unauthenticated

RIGHTS: dict[str, Right] = {"looks": "read", "writes": "write", "rules": "admin"}
TOKENS = Rights({hashlib.sha256(token.encode()).hexdigest(): right for token, right in RIGHTS.items()})


def test_the_scheme_is_read_as_http_has_it() -> None:
    for header in ("Bearer looks", "bearer looks", "BEARER   looks "):
        TOKENS.check(header, "read")
    for wrong in ("Bearer", "Bearerlooks", "looks", "Bearer lo oks", "Bearer \udcff", None):
        with pytest.raises(Unauthenticated):
            TOKENS.check(wrong, "read")
    with pytest.raises(PermissionDenied):
        TOKENS.check("Bearer writes", "admin")


def test_a_cluster_that_was_given_no_tokens_takes_requests_with_and_without() -> None:
    for header in (None, "Bearer whatever", "nonsense"):
        Rights({}).check(header, "admin")
