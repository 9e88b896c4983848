"""Principals in the controller's machine: what each command may change, its bounds, and no caller locks itself out."""

from typing import Any

import pytest

from stockade.cluster.access.principals import (
    CERTIFICATES_MAX,
    PRINCIPALS_MAX,
    TOKENS_MAX,
    Principal,
    PrincipalToken,
    new_token,
    token_id,
)
from stockade.cluster.controller import principals as rules
from stockade.cluster.controller.commands import encode_command
from stockade.cluster.controller.machine import ControllerMachine
from stockade.cluster.controller.principals import (
    AddPrincipalToken,
    DeletePrincipal,
    DeletePrincipalToken,
    PrincipalCommand,
    PrincipalPut,
    PutPrincipal,
)
from stockade.cluster.controller.timed import Done
from stockade.cluster.model import By
from stockade.partition.errors import InvalidRequest, NotFound, ThrottlingQuotaExceeded

ROOT = By("root")


class Machines:
    """A machine, and one that follows it through checkpoints."""

    def __init__(self) -> None:
        self.told: list[int] = []
        self.machine: ControllerMachine = ControllerMachine(
            principals_changed=lambda: self.told.append(self.machine.principals.index)
        )
        self.index = 0

    def do(self, command: PrincipalCommand) -> Any:
        self.index += 1
        before = self.rows
        answer = self.machine.apply(self.index, 1, encode_command(command))
        if isinstance(answer, Exception):
            assert self.rows == before, "a refusal changes nothing"
        restored = ControllerMachine()
        restored.restore(None, self.machine.capture().state, [])
        assert restored.principals.table() == self.machine.principals.table()
        assert restored.capture().state == self.machine.capture().state
        return answer

    def put(self, name: str, *rights: str, certificates: tuple[str, ...] = (), **more: Any) -> Any:
        return self.do(PutPrincipal(now_ms=0, name=name, rights=list(rights), certificates=list(certificates), **more))

    @property
    def rows(self) -> list[Principal]:
        return self.machine.principals.table().rows


@pytest.fixture
def machines() -> Machines:
    return Machines()


def token() -> PrincipalToken:
    return PrincipalToken(new_token().hash)


def test_principals_changed_is_called_for_each_change_of_a_principal(machines: Machines) -> None:
    assert machines.put("p", "read topic:t", tokens=[mine := token()]) == PrincipalPut(created=True)
    assert machines.put("p", "produce topic:t*", certificates=("CN:p",)) == PrincipalPut(created=False)
    assert machines.rows == [Principal("p", ["produce topic:t*"], [mine], ["CN:p"])], "it keeps its tokens"
    assert machines.put("p", tokens=[]) == PrincipalPut(created=False)
    assert machines.rows == [Principal("p")]
    assert machines.do(DeletePrincipal(now_ms=0, name="p")) == Done()
    assert isinstance(machines.do(DeletePrincipal(now_ms=0, name="p")), NotFound)
    assert machines.told == [1, 2, 3, 4], "and a refusal is not"


def test_a_principal_has_two_tokens_so_that_clients_can_change_over(machines: Machines) -> None:
    machines.put("p")
    old, new, third = token(), token(), token()
    for each in (old, new, new):
        assert machines.do(AddPrincipalToken(now_ms=0, name="p", token=each)) == Done()
    assert machines.told == [1, 2, 3], "the same again changes nothing"
    refused = machines.do(AddPrincipalToken(now_ms=0, name="p", token=third))
    assert isinstance(refused, InvalidRequest)
    assert f"{TOKENS_MAX} tokens at most: delete the old one first" in refused.detail
    assert machines.do(DeletePrincipalToken(now_ms=0, name="p", token_id=token_id(old))) == Done()
    assert machines.do(AddPrincipalToken(now_ms=0, name="p", token=third)) == Done()
    assert machines.rows[0].tokens == [new, third]
    for name, gone in (("p", token_id(old)), ("nobody", token_id(new))):
        assert isinstance(machines.do(DeletePrincipalToken(now_ms=0, name=name, token_id=gone)), NotFound)
    assert isinstance(machines.do(AddPrincipalToken(now_ms=0, name="nobody", token=old)), NotFound)


def test_a_credential_belongs_to_one_principal(machines: Machines) -> None:
    shared = token()
    machines.put("p", certificates=("CN:a",), tokens=[shared])
    for refused in (
        machines.put("q", certificates=("CN:a",)),
        machines.put("q", tokens=[PrincipalToken(shared.hash[:17] + new_token().hash[17:])]),
        machines.put("q", tokens=[shared, shared]),
    ):
        assert isinstance(refused, InvalidRequest)
    machines.put("p")
    assert isinstance(machines.put("q", certificates=("CN:a",)), PrincipalPut), "it is free again"


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"name": "a b"}, "is not 1 to 249 of letters"),
        ({"rights": ["write topic:t"]}, "no verb write"),
        ({"certificates": ["p"]}, "is not CN:, DNS:"),
        ({"certificates": [f"CN:{number}" for number in range(CERTIFICATES_MAX + 1)]}, "certificates: at most 16"),
        ({"tokens": [PrincipalToken("secret")]}, "not what `stockade principals token` prints"),
        ({"tokens": [token(), token(), token()]}, "tokens: at most 2"),
        ({"rights": ["read topic:t"] * 1001}, "rights: at most 1000"),
    ],
)
def test_a_fault_is_refused_with_its_sentence(machines: Machines, given: dict[str, Any], fault: str) -> None:
    whole = {"name": "p", "rights": [], "certificates": []} | given
    refused = machines.do(PutPrincipal(now_ms=0, **whole))
    assert isinstance(refused, InvalidRequest)
    assert fault in refused.detail


def test_a_refused_principal_names_every_fault(machines: Machines) -> None:
    refused = machines.put("a b", "write topic:t", "trim group:g", certificates=("p",))
    assert isinstance(refused, InvalidRequest)
    assert refused.detail.count("; rights: ") == 2
    assert "; certificates: " in refused.detail


@pytest.mark.parametrize(
    ("rights", "credentials"),
    [(["read topic:*"], {"certificates": ("CN:a",)}), (["all"], {}), (["admin cluster"], {"tokens": []})],
)
def test_the_first_principal_must_be_able_to_make_others(
    machines: Machines, rights: list[str], credentials: dict[str, Any]
) -> None:
    refused = machines.put("p", *rights, opens=True, **credentials)
    assert isinstance(refused, InvalidRequest)
    assert "everybody would be locked out" in refused.detail
    assert machines.put("root", "admin cluster", certificates=("CN:root",), opens=True) == PrincipalPut(created=True)
    assert isinstance(machines.put("p", *rights, opens=True, **credentials), PrincipalPut), "another one need not"


def test_a_caller_cannot_take_its_own_admin_right_or_last_credential(machines: Machines) -> None:
    first, second = token(), token()
    machines.put("root", "all", tokens=[first, second])
    for refused in (
        machines.put("root", "read topic:*", by=ROOT),
        machines.put("root", "all", tokens=[], by=ROOT),
        machines.do(DeletePrincipal(now_ms=0, name="root", by=ROOT)),
    ):
        assert isinstance(refused, InvalidRequest)
    assert machines.do(DeletePrincipalToken(now_ms=0, name="root", token_id=token_id(first), by=ROOT)) == Done()
    last = machines.do(DeletePrincipalToken(now_ms=0, name="root", token_id=token_id(second), by=ROOT))
    assert isinstance(last, InvalidRequest)
    assert "lock you out" in last.detail
    assert machines.do(DeletePrincipal(now_ms=0, name="root", by=By("other"))) == Done(), "another one may"


def test_principals_are_as_many_as_documented(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    assert PRINCIPALS_MAX == 10_000
    monkeypatch.setattr(rules, "PRINCIPALS_MAX", 3)
    for number in range(3):
        assert isinstance(machines.put(f"p{number}"), PrincipalPut)
    assert isinstance(machines.put("p3"), ThrottlingQuotaExceeded)
    assert isinstance(machines.put("p2", "all"), PrincipalPut), "one that is there may change"


def test_their_rights_together_are_as_many_as_documented(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    assert rules.RIGHTS_OF_ALL_MAX == 100_000
    monkeypatch.setattr(rules, "RIGHTS_OF_ALL_MAX", 3)
    machines.put("p", "read topic:a", "read topic:b")
    assert isinstance(machines.put("q", "read topic:a", "read topic:b"), ThrottlingQuotaExceeded)
    assert isinstance(machines.put("q", "read topic:a"), PrincipalPut)
    assert isinstance(machines.put("p", "read topic:c", "read topic:d"), PrincipalPut), "in place of two others"
    machines.do(DeletePrincipal(now_ms=0, name="p"))
    assert isinstance(machines.put("r", "read topic:a", "read topic:b"), PrincipalPut)
