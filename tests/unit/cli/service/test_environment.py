"""The environment can say every setting of a node's file, in its place, and is refused whole with every fault."""

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sources import ROOT

from stockade.cli.main import main
from stockade.cli.service.environment import OTHERS, load, settings, without_settings
from stockade.cluster.config import ConfigError, NodeConfig, check

MEMBER = {"node_id": "n1", "url": "http://127.0.0.1:17101", "raft": "127.0.0.1:17201", "zone": "a"}
ALONE = {
    "STOCKADE_NODE_ID": "n1",
    "STOCKADE_CLUSTER_ID": "house",
    "STOCKADE_DATA_DIR": "data",
    "STOCKADE_HTTP": "127.0.0.1:17101",
    "STOCKADE_RAFT_LISTEN": "127.0.0.1:17201",
    "STOCKADE_MEMBERS": json.dumps([MEMBER]),
}
HASH = (
    "954ead8facbe56fa.c719cb4fd74ffff75cf49472b5c94afc.fbc83c452fcdc738a1d95254152e49805635d0f353ce289c405c071a091a5c6f"
)
PRINCIPALS = f"""# Of all nodes.
[[principals]]
name = "orders"
rights = ["all"]
tokens = [{{ hash = "{HASH}", expires = 2099-01-31T00:00:00Z }}]
"""


def faults(environ: Mapping[str, str], path: Path | None = None) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        load(path, environ=environ)
    return refused.value.faults


def test_a_node_is_configured_by_the_environment_alone() -> None:
    config = load(None, environ=ALONE)
    assert config == check({k.removeprefix("STOCKADE_").lower(): v for k, v in ALONE.items()} | {"members": [MEMBER]})


def test_every_setting_of_a_file_has_a_variable_that_says_the_same(tmp_path: Path) -> None:
    """Values that differ from every default, in a file and in the environment, make the same configuration."""
    said: dict[str, Any] = {
        "raft": {"election_timeout_min_ms": 601, "election_timeout_max_ms": 1201, "heartbeat_ms": 151},
        "limits": {"request_timeout_ms": 10_001, "inspection_bytes_per_s": 7, "wal_bytes_max": 1 << 30},
        "join": ["http://127.0.0.1:1", "http://127.0.0.1:2"],
        "allowed_hosts": ["a.example", "b.example:1"],
        "processes": 2,
    }
    environ = {
        **ALONE,
        **{
            f"STOCKADE_{table}__{name}".upper(): str(v)
            for table in ("raft", "limits")
            for name, v in said[table].items()
        },
        "STOCKADE_JOIN": "http://127.0.0.1:1, http://127.0.0.1:2",
        "STOCKADE_ALLOWED_HOSTS": "a.example,b.example:1",
        "STOCKADE_PROCESSES": "2",
    }
    alone = {name.removeprefix("STOCKADE_").lower(): value for name, value in ALONE.items()}
    assert load(None, environ=environ) == check({**alone, "members": [MEMBER], **said})


def test_no_setting_is_without_a_variable_and_none_has_the_name_of_another_variable() -> None:
    tables = {"raft", "limits", "ledger", "http_tls", "tiered"}
    top = {name for name in NodeConfig.__struct_fields__ if name not in tables}
    assert {setting.name for setting in settings().values() if len(setting.path) == 1} == top
    assert {setting.path[0] for setting in settings().values() if len(setting.path) > 1} == tables
    assert {"raft.tls.key", "http_tls.plain_listen", "limits.disk_reserve_bytes"} <= {
        s.name for s in settings().values()
    }
    assert not OTHERS & settings().keys()
    assert not OTHERS & {f"{variable}_FILE" for variable in settings()}


def test_variables_of_clients_and_commands_are_no_unknown_settings() -> None:
    documented = set(re.findall(r"\bSTOCKADE_[A-Z_]+\b", (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")))
    documented = {name for name in documented if name not in settings() and "__" not in name}
    assert documented <= OTHERS, documented - OTHERS
    assert load(None, environ={**ALONE, **dict.fromkeys(OTHERS, "x"), "STOCKADE_NODES_PORT_7101_TCP_ADDR": "10.0.0.1"})


def test_a_variable_counts_before_the_file_setting_by_setting(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text("[limits]\nrequest_timeout_ms = 5000\nwal_bytes_max = 8388608\n")
    config = load(path, environ={**ALONE, "STOCKADE_LIMITS__REQUEST_TIMEOUT_MS": "7000"})
    assert (config.limits.request_timeout_ms, config.limits.wal_bytes_max) == (7000, 8388608)
    assert config.data_dir == str(tmp_path / "data"), "paths count from the file"


def test_the_command_line_counts_before_the_variable() -> None:
    assert load(None, 3, {**ALONE, "STOCKADE_PROCESSES": "2"}).processes == 3


@pytest.mark.parametrize(
    "text",
    [
        PRINCIPALS,
        json.dumps(
            [{"name": "orders", "rights": ["all"], "tokens": [{"hash": HASH, "expires": "2099-01-31T00:00:00Z"}]}]
        ),
    ],
)
def test_secrets_come_from_files_in_the_form_of_the_toml_file_or_as_json(text: str, tmp_path: Path) -> None:
    path = tmp_path / "principals"
    path.write_text(text)
    config = load(None, environ={**ALONE, "STOCKADE_PRINCIPALS_FILE": str(path)})
    alone = {name.removeprefix("STOCKADE_").lower(): value for name, value in ALONE.items()}
    assert config == check({**alone, "members": [MEMBER], **tomllib.loads(PRINCIPALS)})


def test_every_fault_is_named_at_once_with_its_variable(tmp_path: Path) -> None:
    environ = {
        **ALONE,
        "STOCKADE_HTTP": "7101",
        "STOCKADE_LIMITS__REQUEST_TIMEOUT_MS": "5",
        "STOCKADE_LIMITS__WAL_BYTES_MAX": "1 GiB",
        "STOCKADE_LIMTS__WAL_BYTES_MAX": "1",
        "STOCKADE_OPEN_TO_ALL": "yes",
        "STOCKADE_MEMBERS": "n1,n2",
        "STOCKADE_TOKENS_FILE": str(tmp_path / "none"),
    }
    found = faults(environ)
    assert found == [
        "STOCKADE_LIMITS__WAL_BYTES_MAX: '1 GiB' is not a whole number",
        "STOCKADE_LIMTS__WAL_BYTES_MAX: no setting of a node has this name",
        *(fault for fault in found if fault.startswith("STOCKADE_MEMBERS: ")),
        "STOCKADE_OPEN_TO_ALL: 'yes' is neither true nor false",
        f"STOCKADE_TOKENS_FILE: [Errno 2] No such file or directory: '{tmp_path / 'none'}'",
        "limits.request_timeout_ms: must be 100 to 300000, not 5 (from STOCKADE_LIMITS__REQUEST_TIMEOUT_MS)",
        "http: '7101' is not host:port (from STOCKADE_HTTP)",
    ]
    assert len(found) == 7


def test_a_value_and_a_file_for_it_are_refused_and_so_is_the_file_of_a_path(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("SECRET")
    found = faults(
        {
            **ALONE,
            "STOCKADE_NODE_ID_FILE": "x",
            "STOCKADE_RAFT__TLS__KEY_FILE": str(tmp_path / "key"),
            "STOCKADE_JOIN": "",
        }
    )
    assert found[:2] == [
        "STOCKADE_NODE_ID_FILE: STOCKADE_NODE_ID says the same setting",
        "STOCKADE_RAFT__TLS__KEY_FILE: say STOCKADE_RAFT__TLS__KEY, which names the file itself",
    ]
    assert "SECRET" not in str(found)


@pytest.mark.parametrize("text", ["[[tokens]]\nname = 'a'\n", "members = 1", "[1,", "[[principals]]\n[limits]\n"])
def test_tables_that_are_neither_json_nor_these_tables_are_refused(text: str) -> None:
    (fault,) = faults({**ALONE, "STOCKADE_PRINCIPALS": text})
    assert fault.startswith("STOCKADE_PRINCIPALS: ")


def test_a_process_that_takes_its_settings_from_a_file_gets_no_others() -> None:
    kept = {"STOCKADE_URL": "x", "PATH": "y"}
    assert (
        without_settings({**ALONE, **kept, "STOCKADE_LIMITS__WAL_BYTES_MAX": "1", "STOCKADE_TOKENS_FILE": "f"}) == kept
    )


def test_serve_takes_its_configuration_from_the_environment_and_says_so(tmp_path: Path) -> None:
    environ = {**ALONE, "STOCKADE_DATA_DIR": str(tmp_path)}
    checked = CliRunner(env=environ).invoke(main, ["serve", "--check"])
    assert checked.stdout.startswith("the environment is fine: node n1 of 1\n"), checked.output
    refused = CliRunner(env={**environ, "STOCKADE_HTTP": "here"}).invoke(main, ["serve", "--check"])
    assert refused.exit_code == 1
    assert "the environment cannot be used:\n  - http: 'here' is not host:port (from STOCKADE_HTTP)" in refused.stderr


def test_serve_without_any_configuration_says_where_it_looks() -> None:
    nothing = CliRunner(env=dict.fromkeys(ALONE)).invoke(main, ["serve"])
    assert nothing.exit_code == 2
    assert "--config FILE" in nothing.stderr
