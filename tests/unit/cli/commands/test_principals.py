"""`stockade principals …`: what it prints can be used as it is."""

import json
import tomllib

from click.testing import CliRunner
from msgspec import convert

from stockade.cli.main import main
from stockade.cluster.access.principals import Access, Principal, principal_faults


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
