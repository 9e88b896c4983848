import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sources import ROOT

from stockade.cli.node.authority import Wanted, make_certificates
from stockade.cluster.access.principals import Principal, PrincipalToken, new_token
from stockade.cluster.config import ConfigError, NodeConfig, TlsSection, check, load, made, parse_address

TLS = {"ca": "ca.crt", "certificate": "n1.crt", "key": "n1.key"}

TOKEN = {"name": "orders", "sha256": "a" * 64, "may": "write"}


def configuration(**changes: Any) -> dict[str, Any]:
    members = [{"node_id": f"n{i}", "url": f"http://127.0.0.1:710{i}", "raft": f"127.0.0.1:720{i}"} for i in (1, 2, 3)]
    raw = {
        "node_id": "n1",
        "cluster_id": "c",
        "data_dir": "d",
        "http": "127.0.0.1:7101",
        "raft_listen": "127.0.0.1:7201",
        "members": members,
    }
    return {key: value for key, value in (raw | changes).items() if value is not None}


def faults_of(raw: dict[str, Any]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        check(raw)
    return caught.value.faults


def sized(count: int) -> NodeConfig:
    ids = [f"n{number}" for number in range(1, count + 1)]
    members = [{"node_id": name, "url": "http://127.0.0.1:1", "raft": f"{name}:1"} for name in ids]
    return check(configuration(members=members))


def test_a_whole_configuration_is_taken_with_its_defaults() -> None:
    config = check(configuration())
    assert config.me.node_id == "n1"
    assert config.limits.request_timeout_ms == 10_000


def test_a_place_for_old_segments_is_off_by_default_and_a_folder_counts_from_the_file(tmp_path: Path) -> None:
    assert check(configuration()).tiered is None
    bucket = check(configuration(tiered={"place": "s3://bucket/old?region=eu-1"})).tiered
    assert bucket is not None
    assert (bucket.place, bucket.cache_bytes, bucket.timeout_ms) == ("s3://bucket/old?region=eu-1", 1 << 30, 10_000)
    assert faults_of(configuration(tiered={"cache_bytes": 1})) == ["tiered.place: missing"]
    (fault,) = faults_of(configuration(tiered={"place": "s3://key:secret@bucket"}))
    assert fault.startswith("tiered.place: no credentials")
    assert "secret" not in fault
    folder = made(configuration(tiered={"place": "old"}), tmp_path).tiered
    assert folder is not None
    assert folder.place == str(tmp_path / "old")


def test_every_fault_is_named_at_once() -> None:
    faults = faults_of(configuration(node_id=7, http="nowhere", colour="red", raft={"heartbeat_ms": 500, "speed": 1}))
    assert sorted(fault.split(":")[0] for fault in faults) == ["colour", "http", "node_id", "raft.speed"]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"node_id": None}, "node_id"),
        ({"node_id": "n9"}, "members"),
        ({"node_id": "a b"}, "node_id"),
        ({"members": None}, "members"),
        ({"members": [{"node_id": "n1"}]}, "members[0].url"),
        ({"members": [{"node_id": "n1", "url": "ftp://x", "raft": "127.0.0.1:1"}]}, "members"),
        ({"members": [{"node_id": "n1", "url": "http://x", "raft": "127.0.0.1"}]}, "members"),
        ({"join": ["127.0.0.1:7101"]}, "join"),
        ({"join": "http://127.0.0.1:7101"}, "join"),
        (
            {"raft": {"heartbeat_ms": 201}},
            "raft.heartbeat_ms: must be 10 to a third of raft.election_timeout_min_ms (200), not 201",
        ),
        ({"raft": {"election_timeout_max_ms": 600}}, "raft.election_timeout_max_ms"),
        ({"raft": 5}, "raft"),
        ({"limits": {"request_timeout_ms": 99}}, "limits.request_timeout_ms"),
        ({"limits": {"segment_bytes_max": 1}}, "limits.segment_bytes_max"),
        (
            {"limits": {"wal_bytes_max": (1 << 22) - 1}},
            "limits.wal_bytes_max: must be 4194304 to 1099511627776, not 4194303",
        ),
        ({"limits": {"wal_file_bytes": 1 << 31}}, "limits.wal_file_bytes"),
        ({"limits": {"checkpoint_bytes": 0}}, "limits.checkpoint_bytes"),
        ({"limits": {"inspection_bytes_per_s": -1}}, "limits.inspection_bytes_per_s"),
        ({"limits": {"disk_soft_free_bytes": -1}}, "limits.disk_soft_free_bytes"),
        ({"limits": {"disk_hard_free_bytes": (1 << 50) + 1}}, "limits.disk_hard_free_bytes"),
        ({"limits": {"disk_reserve_bytes": (1 << 40) + 1}}, "limits.disk_reserve_bytes"),
        ({"limits": {"disk_soft_free_bytes": 9, "disk_hard_free_bytes": 10}}, "limits.disk_hard_free_bytes"),
        ({"tokens": 5}, "tokens"),
        ({"tokens": [TOKEN | {"may": "everything"}]}, "tokens"),
        ({"tokens": [TOKEN | {"sha256": "the token itself"}]}, "tokens[0].sha256"),
        ({"tokens": [TOKEN | {"sha256": "A" * 64}]}, "tokens[0].sha256"),
        ({"tokens": [TOKEN, TOKEN]}, "tokens"),
        ({"principals": [{"name": "p", "rights": ["write all"]}]}, "principals[0].rights"),
        ({"principals": [{"name": "p", "rigths": ["all"]}]}, "principals: Object contains unknown field `rigths`"),
        ({"principals": [{"name": "p"}, {"name": "p"}]}, "principals: two of them have the name p"),
        ({"allowed_hosts": "orders.example"}, "allowed_hosts"),
        ({"allowed_hosts": ["https://orders.example"]}, "allowed_hosts: 'https://orders.example'"),
        ({"allowed_hosts": ["*.example"]}, "allowed_hosts"),
        ({"allowed_hosts": ["a"] * 65}, "allowed_hosts: at most 64"),
        ({"raft_listen": "192.0.2.1:7201"}, "raft_listen"),
        ({"raft": {"tls": TLS, "plaintext": True}}, "raft.plaintext"),
        ({"raft": {"tls": 5}}, "raft.tls"),
        ({"raft": {"tls": TLS | {"password": "x"}}}, "raft.tls.password"),
        ({"raft": {"tls": TLS | {"ca": 5}}}, "raft.tls.ca"),
        *(
            ({"raft": {"tls": {k: v for k, v in TLS.items() if k != name}}}, f"raft.tls.{name}: missing")
            for name in TLS
        ),
    ],
)
def test_a_bad_setting_is_refused_by_its_name(changes: dict[str, Any], named: str) -> None:
    assert [fault for fault in faults_of(configuration(**changes)) if fault.startswith(named)]


def test_principals_are_taken_with_their_rights_and_credentials() -> None:
    made = new_token()
    one = {"name": "p", "rights": ["read topic:t"], "tokens": [{"hash": made.hash, "expires": "2027-01-31T00:00:00Z"}]}
    config = check(configuration(principals=[one | {"certificates": ["CN:p"]}, {"name": "q"}]))
    expected = PrincipalToken(made.hash, datetime(2027, 1, 31, tzinfo=UTC))
    assert config.principals == [Principal("p", ["read topic:t"], [expected], ["CN:p"]), Principal("q")]
    assert check(configuration()).principals == []


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://127.0.0.1:7101", "127.0.0.1:7101"),
        ("http://orders.example", "orders.example:80"),
        ("https://orders.example", "orders.example:443"),
        ("http://[2001:db8::1]:7101", "[2001:db8::1]:7101"),
    ],
)
def test_a_node_is_reached_where_it_listens_at_its_url_and_by_the_names_it_is_given(url: str, host: str) -> None:
    raw = configuration(allowed_hosts=["proxy.example", "proxy.example:8443", "[::1]:80"])
    raw["members"][0]["url"] = url
    assert check(raw).hosts == [raw["http"], host, "proxy.example", "proxy.example:8443", "[::1]:80"]
    assert len(check(configuration(allowed_hosts=["a"] * 64)).hosts) == 66


def test_tokens_are_taken_by_their_digests() -> None:
    config = check(configuration(tokens=[TOKEN, TOKEN | {"sha256": "b" * 64, "may": "read"}]))
    assert [(token.name, token.may) for token in config.tokens] == [("orders", "write"), ("orders", "read")]
    assert check(configuration()).tokens == []


def test_unencrypted_node_traffic_leaves_the_machine_only_when_asked_for() -> None:
    assert faults_of(configuration(raft_listen="0.0.0.0:7201"))
    assert check(configuration(raft_listen="0.0.0.0:7201", raft={"plaintext": True})).raft.plaintext


OPEN = {"http": "0.0.0.0:7101"}
WORDS = {"http_plaintext": True, "open_to_all": True}
HTTPS = {"http_tls": {"certificate": "n1.crt", "key": "n1.key"}}
OPTIONAL, REQUIRED = (
    {"http_tls": HTTPS["http_tls"] | {"client_ca": "ca.crt", "client_certificates": wanted}}
    for wanted in ("optional", "required")
)
CLEAR, ALL = "http_plaintext = true", "open_to_all = true"


def with_plain(settings: dict[str, Any], address: str) -> dict[str, Any]:
    return {"http_tls": settings["http_tls"] | {"plain_listen": address}}


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        (OPEN, [CLEAR, ALL]),
        (OPEN | {"http_plaintext": True}, [ALL]),
        (OPEN | {"open_to_all": True}, [CLEAR]),
        (OPEN | {"tokens": [TOKEN]}, [CLEAR]),
        (OPEN | {"principals": [{"name": "p"}]}, [CLEAR]),
        (OPEN | {"tokens": [], "principals": []}, [CLEAR, ALL]),
        (OPEN | HTTPS, [ALL]),
        (OPEN | OPTIONAL, [ALL]),
        (OPEN | REQUIRED, []),
        (OPEN | HTTPS | {"tokens": [TOKEN]}, []),
        (OPEN | WORDS, []),
        (OPEN | {"http_plaintext": True, "tokens": [TOKEN]}, []),
        ({"http": "10.1.2.3:7101"}, [CLEAR, ALL]),
        ({"http": "[::]:7101"}, [CLEAR, ALL]),
        ({"http": "n1.example:7101"}, [CLEAR, ALL]),
        ({"http": "127.0.0.1:7101"}, []),
        ({"http": "[::1]:7101"}, []),
        ({"http": "localhost:7101"}, []),
        (WORDS, []),
        (with_plain(HTTPS, "0.0.0.0:7301"), [ALL]),
        (with_plain(HTTPS, "127.0.0.1:7301"), []),
        (OPEN | with_plain(REQUIRED, "0.0.0.0:7301"), [ALL]),
        (OPEN | with_plain(REQUIRED, "127.0.0.1:7301"), []),
    ],
)
def test_http_is_open_to_other_machines_only_when_that_is_said_in_words(
    changes: dict[str, Any], missing: list[str]
) -> None:
    if not missing:
        check(configuration(**changes))
        return
    faults = faults_of(configuration(**changes))
    assert [[word for word in (CLEAR, ALL) if word in fault] for fault in faults] == [[word] for word in missing]


def test_words_that_contradict_the_rest_are_refused() -> None:
    assert [fault.partition(":")[0] for fault in faults_of(configuration(**WORDS, **HTTPS, tokens=[TOKEN]))] == [
        "http_plaintext",
        "open_to_all",
    ]
    assert faults_of(configuration(open_to_all=True, principals=[{"name": "p"}]))


def test_open_listeners_and_every_other_fault_are_named_at_once() -> None:
    raw = configuration(**OPEN, raft_listen="0.0.0.0:7201", cluster_id="a b", colour="red")
    assert sorted(fault.partition(":")[0] for fault in faults_of(raw)) == [
        *("cluster_id", "colour", "http", "http", "raft_listen")
    ]


def test_encrypted_node_traffic_may_leave_the_machine() -> None:
    config = check(configuration(raft_listen="0.0.0.0:7201", raft={"tls": TLS, "heartbeat_ms": 100}))
    assert config.raft.tls == TlsSection("ca.crt", "n1.crt", "n1.key")
    assert config.raft.heartbeat_ms == 100


def test_a_fault_of_the_certificates_does_not_hide_or_add_others() -> None:
    raw = configuration(raft_listen="0.0.0.0:7201", raft={"tls": {"ca": "ca.crt"}, "heartbeat_ms": 500})
    named = ["raft.heartbeat_ms", "raft.tls.certificate", "raft.tls.key"]
    assert sorted(fault.split(":")[0] for fault in faults_of(raw)) == named


def written(directory: Path, node_id: str = "n1", **paths: str) -> Path:
    """A configuration whose certificates are in certs/ beside it."""
    tls = {name: f"certs/{path}" for name, path in TLS.items()} | paths
    lines = [f'node_id="{node_id}"', 'cluster_id="c"', 'data_dir="d"', 'http="127.0.0.1:1"', 'raft_listen="0.0.0.0:2"']
    lines += ["[raft.tls]", *(f'{name}="{path}"' for name, path in tls.items())]
    lines += ["[[members]]", f'node_id="{node_id}"', 'url="http://127.0.0.1:1"', 'raft="127.0.0.1:2"']
    file = directory / "node.toml"
    file.write_text("\n".join(lines))
    return file


@pytest.fixture
def with_certificates(tmp_path: Path) -> Path:
    make_certificates(tmp_path / "certs", "c", [Wanted("n1"), Wanted("n2")], 1)
    return tmp_path


def test_the_documented_configuration_is_taken() -> None:
    text = (ROOT / "docs" / "deploying.md").read_text(encoding="utf-8")
    tables = [block.partition("```")[0] for block in text.split("```toml\n")[1:]]
    https, principals = (next(each for each in tables if each.startswith(name)) for name in ("[http_tls]", "[[princ"))
    config = check(tomllib.loads(tables[0] + https + principals))
    assert config.raft.tls == TlsSection("certs/ca.crt", "certs/n1.crt", "certs/n1.key")


def test_certificates_are_found_relative_to_the_file(with_certificates: Path) -> None:
    config = load(written(with_certificates))
    certs = with_certificates / "certs"
    assert config.raft.tls == TlsSection(str(certs / "ca.crt"), str(certs / "n1.crt"), str(certs / "n1.key"))
    assert config.tls() is not None


def test_plaintext_needs_no_certificates() -> None:
    assert check(configuration()).tls() is None


def test_every_certificate_file_that_cannot_be_read_is_named(with_certificates: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(written(with_certificates, ca="no.crt", key="certs"))
    assert [fault.split(":")[0] for fault in caught.value.faults] == ["raft.tls.ca", "raft.tls.key"]
    assert "No such file" in caught.value.faults[0]


@pytest.mark.parametrize(
    ("node_id", "paths", "named"),
    [
        ("n3", {}, "raft.tls.certificate: names stockade://c/n1, not stockade://c/n3"),
        ("n1", {"certificate": "certs/n2.crt"}, "raft.tls.key: "),
        ("n1", {"certificate": "certs/n2.crt", "key": "certs/n2.key"}, "raft.tls.certificate: names stockade://c/n2"),
        ("n1", {"ca": "certs/n1.key"}, "raft.tls.ca: "),
        ("n1", {"ca": "certs/n2.crt"}, "raft.tls.certificate: the other nodes would not accept it"),
    ],
)
def test_certificates_that_do_not_fit_the_node_are_refused_by_name(
    with_certificates: Path, node_id: str, paths: dict[str, str], named: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(written(with_certificates, node_id, **paths))
    assert len(caught.value.faults) == 1 and caught.value.faults[0].startswith(named)


def test_a_member_named_twice_is_refused() -> None:
    member = {"node_id": "n1", "url": "http://x:1", "raft": "127.0.0.1:1"}
    assert faults_of(configuration(members=[member, member])) == ["members: n1 is there twice"]


def test_nodes_that_others_would_reach_under_one_address_are_refused() -> None:
    """A copied table whose address was not changed: the cluster was founded, and two of its nodes never connected."""
    members = configuration()["members"]
    members[2]["raft"] = members[1]["raft"]
    assert faults_of(configuration(members=members)) == ["members: 127.0.0.1:7202 is raft of two nodes"]


NO_BASE_URLS = [
    *("ftp://a:1", "http://:1", "http://a:0", "http://a:71011", "http://a:x", "http://a:1/", "http://a:1?"),
    *("http://u@a:1", "http://fd00::1:7101", "http://[fd00::1"),
]


@pytest.mark.parametrize("url", NO_BASE_URLS)
def test_a_url_that_no_client_could_use_is_refused_wherever_it_stands(url: str) -> None:
    """A node that was to join through one ended with a traceback, after a check had found it fine."""
    member = {"node_id": "n1", "url": url, "raft": "127.0.0.1:1"}
    assert faults_of(configuration(members=[member], join=[url])) == [
        f"members: url {url!r} of n1 is not http://host:port",
        f"join: {url!r} is not http://host:port",
    ]


@pytest.mark.parametrize(("count", "controllers"), [(1, 1), (2, 1), (3, 3), (4, 3), (5, 5), (9, 5)])
def test_the_controller_group_has_an_odd_size_of_five_at_most(count: int, controllers: int) -> None:
    assert sized(count).controllers == [f"n{number}" for number in range(1, controllers + 1)]


def test_a_node_that_joins_founds_no_controller_group() -> None:
    member = {"node_id": "n1", "url": "http://x:1", "raft": "127.0.0.1:1"}
    assert check(configuration(members=[member], join=["http://127.0.0.1:7102"])).controllers == []


def test_a_relative_data_folder_is_relative_to_the_file(tmp_path: Path) -> None:
    lines = ['node_id="n1"', 'cluster_id="c"', 'data_dir="d"', 'http="127.0.0.1:1"', 'raft_listen="127.0.0.1:2"']
    lines += ["[[members]]", 'node_id="n1"', 'url="http://127.0.0.1:1"', 'raft="127.0.0.1:2"']
    (tmp_path / "node.toml").write_text("\n".join(lines))
    assert load(tmp_path / "node.toml").data_dir == str(tmp_path / "d")


def test_a_file_that_cannot_be_read_is_named_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "none.toml")
    assert caught.value.faults == [f"{tmp_path / 'none.toml'}: No such file or directory"]


@pytest.mark.parametrize("text", ["a = ", "\x00"])
def test_a_file_that_is_not_toml_is_one_clear_fault(tmp_path: Path, text: str) -> None:
    (tmp_path / "node.toml").write_text(text)
    with pytest.raises(ConfigError, match=r"node\.toml"):
        load(tmp_path / "node.toml")


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "host:0", "host:65536", "host:+1", "host:１"])
def test_a_text_that_is_not_host_and_port_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        parse_address(text)


def test_every_fault_of_the_section_for_https_is_named_at_once() -> None:
    section = {"certificate": "a", "plain_listen": "x", "client_certificates": "required"}
    faults = faults_of(configuration(colour="red", http_tls=section | {"cipher": 1}))
    assert {fault.partition(":")[0] for fault in faults} == {"colour", "http_tls.key", "http_tls.cipher"}
    faults = faults_of(configuration(http_tls=section | {"key": "b"}))
    assert {fault.partition(":")[0] for fault in faults} == {"http_tls.plain_listen", "http_tls.client_ca"}
