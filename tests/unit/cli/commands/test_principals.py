"""`stockade principals …`: what it prints can be used as it is."""

import errno
import json
import tomllib
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result
from msgspec import convert

from stockade.cli.commands import principals
from stockade.cli.main import main
from stockade.client.api.client import Client
from stockade.cluster.access.principals import Access, Principal, principal_faults
from stockade.partition.api.principals import IssuedToken, PrincipalInfo
from stockade.partition.errors import InvalidRequest, RequestTimedOut

from ...client.fake_cluster import FakeCluster
from ..conftest import Run
from ..ui.test_streams import FULL, ran


def test_a_token_is_let_in_by_the_lines_that_are_printed_for_the_configuration() -> None:
    done = CliRunner().invoke(main, ["principals", "token"])
    token = done.stdout.splitlines()[0].split()[1]
    configured = tomllib.loads(f'name = "p"\n{done.stderr.splitlines()[-1]}')
    principal = convert(configured, Principal)
    assert not list(principal_faults([principal]))
    assert Access((), [principal]).caller(f"Bearer {token}", None).principal == "p"
    assert token not in done.stderr


def test_a_program_gets_the_token_and_its_hash_as_json() -> None:
    made = [json.loads(CliRunner().invoke(main, ["principal", "token", "--json"]).stdout) for _ in range(2)]
    assert set(made[0]) == {"token", "hash"}
    assert made[0]["token"] != made[1]["token"]


PUT = ("principals", "put", "root", "--right", "all", "--new-token")
ADD = ("principals", "add-token", "root")


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ids of the tokens whose hashes the cluster was sent; it takes each."""
    ids: list[str] = []

    async def put(_: Client, name: str, rights: list[str], **given: Any) -> PrincipalInfo:
        ids.extend(each.partition(".")[0] for each in given["token_hashes"])
        return PrincipalInfo(name, ["all"], [], [], configured=False)

    async def add(_: Client, name: str, *, token_hash: str, expires_ms: int | None) -> IssuedToken:
        ids.append(token_hash.partition(".")[0])
        return IssuedToken("0a1b", None, expires_ms)

    monkeypatch.setattr(Client, "put_principal", put)
    monkeypatch.setattr(Client, "add_token", add)
    return ids


def told(done: Result) -> tuple[str, str]:
    """The id of the token on standard error, and what is said of it."""
    token, said = done.stderr.splitlines()[:2]
    assert done.stdout == ""
    return token.removeprefix("token  stk.").partition(".")[0], said


@pytest.mark.parametrize("command", [PUT, ADD])
@pytest.mark.parametrize("failure", [RequestTimedOut("no answer"), KeyboardInterrupt()])
def test_a_new_token_of_which_no_answer_tells_is_on_standard_error(
    run: Run, sent: list[str], monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], failure: BaseException
) -> None:
    def failing(method: Callable[..., Any]) -> Callable[..., Any]:
        async def call(*args: Any, **given: Any) -> None:
            await method(*args, **given)
            raise failure

        return call

    for name in ("put_principal", "add_token"):
        monkeypatch.setattr(Client, name, failing(getattr(Client, name)))
    done = run(*command)
    assert told(done) == (sent[0], "This token may be in force, and is not shown again.")
    assert done.exit_code == (3 if isinstance(failure, RequestTimedOut) else 130)


@pytest.mark.parametrize("output", [("_show_new",), ("show_json", "--json")])
@pytest.mark.parametrize("command", [PUT, ADD])
def test_a_new_token_that_cannot_be_printed_is_on_standard_error(
    run: Run, sent: list[str], monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], output: tuple[str, ...]
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(principals, output[0], full)
    done = run(*command, *output[1:])
    assert told(done) == (sent[0], "This token is in force, and is not shown again.")
    assert done.exit_code != 0


def test_a_new_token_of_a_principal_that_is_refused_is_shown_nowhere(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise InvalidRequest("rights: no verb")

    monkeypatch.setattr(Client, "put_principal", refuse)
    done = run(*PUT)
    assert done.exit_code == 1
    assert "stk." not in done.output


@pytest.mark.skipif(not FULL.is_char_device(), reason="needs /dev/full")
@pytest.mark.parametrize("redirection", [f"> {FULL}", ">&-", "> /dev/null"])
def test_no_token_is_sent_while_standard_output_would_lose_it(cluster: FakeCluster, redirection: str) -> None:
    done = ran(redirection, *PUT, "--url", cluster.nodes[0])
    assert done.returncode == 2
    assert "standard output cannot take the new token" in done.stderr
    assert cluster.paths("PUT") == []
