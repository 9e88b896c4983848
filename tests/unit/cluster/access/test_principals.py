"""Credentials: a request is a principal's by its token or its certificate, and by nothing that resembles them."""

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from stockade.cluster.access import principals as rules
from stockade.cluster.access.principals import (
    CERTIFICATES_MAX,
    LEVELS,
    RIGHTS_MAX,
    UNHEARD,
    Access,
    Principal,
    PrincipalToken,
    Token,
    new_token,
    principal_faults,
    token_faults,
)
from stockade.cluster.access.quotas import Quota
from stockade.cluster.access.rights import Caller
from stockade.cluster.https import ClientCertificate
from stockade.partition.errors import LeaderNotAvailable, ThrottlingQuotaExceeded, Unauthenticated

LEGACY = [Token(level, hashlib.sha256(level.encode()).hexdigest(), level) for level in LEVELS]
CERTIFICATE = ClientCertificate("c0ffee" + "0" * 58, ("DNS:a.example", "URI:spiffe://x/alice"), "alice")


@dataclass
class Clock:
    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


def bearer(token: str) -> str:
    return f"Bearer {token}"


def test_the_scheme_is_read_as_http_has_it() -> None:
    access = Access(LEGACY)
    for header in ("Bearer read", "bearer read", "BEARER   read "):
        assert access.caller(header, None).name == "the token read"
    for wrong in ("Bearer", "Bearerread", "read", "Bearer re ad", "Bearer \udcff", "Basic cmVhZA==", "", None):
        with pytest.raises(Unauthenticated):
            access.caller(wrong, None)


def test_a_cluster_without_principals_takes_requests_with_and_without_credentials() -> None:
    access = Access()
    assert access.is_open
    for header in (None, "Bearer whatever", "nonsense"):
        caller = access.caller(header, None)
        caller.require("admin", "cluster", "")
        assert caller.principal == ""


def test_a_token_is_its_principals_and_a_changed_or_foreign_one_is_refused() -> None:
    mine, other = new_token(), new_token()
    access = Access((), [Principal("p", ["read topic:t"], [PrincipalToken(mine.hash)])])
    assert not access.is_open
    caller = access.caller(bearer(mine.token), None)
    assert (caller.principal, caller.may("read", "topic", "t"), caller.may("read", "topic", "u")) == ("p", True, False)
    changed = mine.token[:-2] + ("AA" if mine.token[-2:] != "AA" else "BB")
    hybrid = mine.token.rpartition(".")[0] + "." + other.token.rpartition(".")[2]
    for wrong in (changed, hybrid, other.token, mine.hash, mine.token.upper(), "stk.", ""):
        with pytest.raises(Unauthenticated, match="does not know the token"):
            access.caller(bearer(wrong), None)


def test_the_hash_of_a_token_gives_no_token_away_and_two_hashes_of_one_token_differ() -> None:
    made = new_token()
    secret = made.token.rpartition(".")[2]
    assert secret not in made.hash
    token_id, salt, digest = made.hash.split(".")
    assert made.token.split(".")[1] == token_id
    assert digest == hashlib.sha256(f"{salt}.{made.token}".encode()).hexdigest()


def test_a_token_expires_at_its_second_and_its_successor_is_valid_beside_it() -> None:
    old, new, clock = new_token(), new_token(), Clock()
    expires = datetime(2027, 1, 1, tzinfo=UTC)
    principal = Principal("p", ["read topic:t"], [PrincipalToken(old.hash, expires), PrincipalToken(new.hash)])
    access = Access((), [principal], clock)
    clock.now_s = expires.timestamp() - 0.001
    assert {access.caller(bearer(token), None).principal for token in (old.token, new.token)} == {"p"}
    clock.now_s = expires.timestamp()
    with pytest.raises(Unauthenticated, match="of principal p has expired"):
        access.caller(bearer(old.token), None)
    assert access.caller(bearer(new.token), None).principal == "p"


@pytest.mark.parametrize("name", ["CN:alice", "DNS:a.example", "URI:spiffe://x/alice", "SHA256:c0ffee" + "0" * 58])
def test_a_certificate_is_a_principals_by_any_name_in_it(name: str) -> None:
    access = Access((), [Principal("p", ["read topic:t"], certificates=[name, "CN:other"])])
    assert access.caller(None, CERTIFICATE).principal == "p"


def test_a_certificate_without_a_configured_name_is_no_principals() -> None:
    access = Access((), [Principal("p", certificates=["CN:a.example", "DNS:alice", "CN:bob"])])
    with pytest.raises(Unauthenticated, match="no principal of this cluster has a name of the client's certificate"):
        access.caller(None, CERTIFICATE)
    with pytest.raises(Unauthenticated, match="a bearer token or a client certificate"):
        access.caller(None, None)


def test_a_header_counts_before_the_certificate() -> None:
    made = new_token()
    access = Access((), [Principal("p", certificates=["CN:alice"]), Principal("q", tokens=[PrincipalToken(made.hash)])])
    assert access.caller(bearer(made.token), CERTIFICATE).principal == "q"
    with pytest.raises(Unauthenticated):
        access.caller("Bearer wrong", CERTIFICATE)


def test_tokens_of_levels_and_principals_count_side_by_side_and_levels_own_in_common() -> None:
    made = new_token()
    access = Access(LEGACY, [Principal("p", ["all"], [PrincipalToken(made.hash)])])
    assert {access.caller(bearer(level), None).principal for level in LEVELS} == {""}
    assert access.caller(bearer(made.token), None).principal == "p"


def test_each_level_includes_those_before_it() -> None:
    assert set(LEVELS["read"]) < set(LEVELS["write"])
    assert LEVELS["admin"] == ("all",)


def test_every_fault_of_the_configuration_is_found_at_once() -> None:
    made = new_token()
    faults = list(
        principal_faults(
            [
                Principal("a b", ["write x"], [PrincipalToken("x")], ["alice"]),
                Principal("p", ["read topic:t"] * (RIGHTS_MAX + 1), [PrincipalToken(made.hash)] * 3),
                Principal("p", certificates=["CN:x"] * (CERTIFICATES_MAX + 1)),
                Principal("q", tokens=[PrincipalToken(made.hash, datetime(2027, 1, 1))], certificates=["CN:x"]),
            ]
        )
    )
    for part in (
        "principals[0].name: 'a b'",
        "principals[0].rights: 'write x'",
        "principals[0].tokens.hash",
        "principals[0].certificates: 'alice'",
        f"principals[1].rights: at most {RIGHTS_MAX}",
        "principals[1].tokens: at most 2",
        f"principals[2].certificates: at most {CERTIFICATES_MAX}",
        "principals[3].tokens.expires: 2027-01-01T00:00:00 has no offset",
        "two of them have the certificate CN:x",
        "two of them have the name p",
        f"two of them have the token {made.hash.split('.')[0]}",
    ):
        assert any(part in fault for fault in faults), (part, faults)


def test_a_principal_at_every_bound_has_no_fault() -> None:
    tokens = [PrincipalToken(new_token().hash) for _ in range(2)]
    names = [f"CN:{number}" for number in range(CERTIFICATES_MAX)]
    assert not list(principal_faults([Principal("p" * 249, ["read topic:t"] * RIGHTS_MAX, tokens, names)]))


def test_faults_of_level_tokens_are_found() -> None:
    assert not list(token_faults(LEGACY))
    twice = [Token("a", "0" * 64, "read"), Token("b", "0" * 64, "admin"), Token("c", "ABC", "read")]
    assert list(token_faults(twice)) == [
        "tokens[2].sha256: not 64 hexadecimal digits in lower case",
        "tokens: two of them have the same sha256",
    ]


def test_a_cluster_whose_last_principals_are_deleted_is_not_open_to_all() -> None:
    """Two administrators that deleted each other at the same moment opened it to every caller."""
    access, mine = Access(), new_token()
    access.replicate(0, [])
    assert access.is_open, "there never were any"
    access.replicate(5, [Principal("alice", ["all"], [PrincipalToken(mine.hash)])])
    access.replicate(7, [])
    assert not access.is_open
    for header, why in ((None, "no principal is left: put one into node"), (bearer(mine.token), "not know the token")):
        with pytest.raises(Unauthenticated, match=why):
            access.caller(header, None)
    access.configure((), [Principal("root", ["all"], [PrincipalToken(mine.hash)])])
    assert access.caller(bearer(mine.token), None).principal == "root"


def test_a_node_that_has_not_heard_of_the_principals_is_not_open_and_refuses_no_credential_for_good() -> None:
    """It was open. One with principals of its own answered 401 to the tokens of others, at which clients give up."""
    for configured in ([], [Principal("root", ["all"], [], ["CN:alice"])]):
        access, mine = Access((), configured), new_token()
        access.replicate(UNHEARD, [])
        assert not access.is_open
        for header in (None, bearer(mine.token), bearer("guessed"), "Basic cmVhZA=="):
            with pytest.raises(LeaderNotAvailable, match="has not heard yet") as refused:
                access.caller(header, None)
            assert refused.value.retriable
        if configured:
            assert access.caller(None, CERTIFICATE).principal == "root"
        access.replicate(3, [Principal("p", ["read topic:t"], [PrincipalToken(mine.hash)])])
        assert access.caller(bearer(mine.token), None).principal == "p"
        with pytest.raises(Unauthenticated):
            access.caller(bearer("guessed"), None)
    access = Access()
    access.replicate(UNHEARD, [])
    access.replicate(0, [])
    assert access.is_open, "the cluster never had any"


def test_replicated_principals_end_an_open_cluster_and_the_newest_table_counts() -> None:
    access, mine = Access(), new_token()
    access.replicate(5, [Principal("p", ["read topic:t"], [PrincipalToken(mine.hash)]), Principal("q")])
    assert not access.is_open
    assert access.caller(bearer(mine.token), None).principal == "p"
    for header in (None, bearer("guessed")):
        with pytest.raises(Unauthenticated):
            access.caller(header, None)
    access.replicate(4, [])
    assert not access.is_open, "an older table changes nothing"
    access.replicate(6, [Principal("p", ["read topic:u"], [PrincipalToken(mine.hash)])])
    caller = access.caller(bearer(mine.token), None)
    assert caller.may("read", "topic", "u") and not caller.may("read", "topic", "t")
    access.replicate(7, [Principal("q", certificates=["CN:alice"])])
    with pytest.raises(Unauthenticated):
        access.caller(bearer(mine.token), None)
    assert access.caller(None, CERTIFICATE).principal == "q"
    access.replicate(8, [Principal("r", certificates=["CN:alice"])])
    assert access.caller(None, CERTIFICATE).principal == "r"


def test_configured_principals_have_precedence_over_replicated_ones() -> None:
    mine = new_token()
    access = Access((), [Principal("root", ["all"], [PrincipalToken(mine.hash)], ["CN:alice"])])
    access.replicate(1, [Principal("root", [], [], ["CN:other"]), Principal("thief", ["all"], [], ["CN:alice"])])
    for found in (access.caller(bearer(mine.token), None), access.caller(None, CERTIFICATE)):
        assert found.principal == "root"
        found.require("admin", "cluster", "")
    access.replicate(2, [])
    assert access.caller(None, CERTIFICATE).principal == "root", "what leaves takes nothing of the configured with it"


@pytest.mark.parametrize("is_configured", [True, False])
def test_the_spending_of_a_principal_survives_changes_of_principals(is_configured: bool) -> None:
    """Whatever it has in flight was forgotten, and it could have as much again; and its rates were unused."""
    index = 0

    def change(*principals: Principal) -> Caller:
        nonlocal index
        index += 1
        access.configure((), [root, *principals] if is_configured else [root])
        access.replicate(index, () if is_configured else principals)
        return access.caller(None, CERTIFICATE)

    root, quota = Principal("root", ["all"]), Quota(requests_per_s=1, bytes_per_s=1 << 30)
    access, mine = Access((), [root]), Principal("p", ["read topic:t"], [], ["CN:alice"], quota=quota)
    spending = change(mine).spending
    spending.admit()
    spending.held_requests = 5
    caller = change(Principal("p", ["read topic:u"], [], ["CN:alice"], quota=quota))
    assert caller.may("read", "topic", "u")
    assert caller.spending.held_requests == 5
    with pytest.raises(ThrottlingQuotaExceeded):
        caller.spending.admit()
    more = change(Principal("p", [], [], ["CN:alice"], quota=Quota(requests_per_s=2))).spending
    assert (more.held_requests, more.quota) == (5, Quota(requests_per_s=2))
    more.admit()
    other = change(Principal("q", [], [], ["CN:alice"], quota=quota)).spending
    other.admit()
    assert other.held_requests == 0
    assert change(mine).spending.held_requests == 0, "one that comes back is a new one"


def test_no_principal_of_many_can_have_the_fault_of_another_twice() -> None:
    two = [Principal("p", tokens=[PrincipalToken(new_token().hash)] * 2)]
    assert "two of them have the same id" in " ".join(principal_faults(two))


def test_a_token_that_was_recognized_is_not_recognized_after_it_was_deleted_or_expired() -> None:
    clock, mine = Clock(), new_token()
    access = Access((), [Principal("root")], clock)
    expires = datetime.fromtimestamp(100, UTC)
    access.replicate(1, [Principal("p", [], [PrincipalToken(mine.hash, expires)])])
    for _ in range(2):
        assert access.caller(bearer(mine.token), None).principal == "p"
    clock.now_s = 100
    for _ in range(2):
        with pytest.raises(Unauthenticated, match=f"the token {mine.token[4:20]} of principal p has expired"):
            access.caller(bearer(mine.token), None)
    clock.now_s = 0
    access.replicate(2, [Principal("p")])
    with pytest.raises(Unauthenticated):
        access.caller(bearer(mine.token), None)


def test_recognized_tokens_are_as_many_as_documented(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rules.RECOGNIZED_MAX == 10_000
    monkeypatch.setattr(rules, "RECOGNIZED_MAX", 2)
    tokens = [new_token() for _ in range(5)]
    access = Access((), [Principal(f"p{n}", [], [PrincipalToken(each.hash)]) for n, each in enumerate(tokens)])
    for number, each in [*enumerate(tokens)] * 2:
        assert access.caller(bearer(each.token), None).principal == f"p{number}"
        assert len(access._recognized) <= 2
