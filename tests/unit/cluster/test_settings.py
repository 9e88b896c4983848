"""What a node runs with, by the names of its settings; no secret is among it."""

from stockade.cluster.config import LIMITS, check
from stockade.cluster.settings import ALIKE, in_force, settings_of

from .test_config import TOKEN, configuration


def test_every_setting_is_told_with_what_was_given_and_its_default() -> None:
    config = check(configuration(limits={"wal_bytes_max": 1 << 30}, allowed_hosts=["books.example"], processes=None))
    found = {each.name: (each.value, each.default) for each in in_force(config)}
    assert found["limits.wal_bytes_max"] == (1 << 30, 512 << 20)
    assert found["limits.segment_bytes_max"] == (64 << 20, 64 << 20)
    assert found["allowed_hosts"] == (["books.example"], [])
    assert found["node_id"] == ("n1", None)
    assert found["members"] == (["n1", "n2", "n3"], None)
    assert found["http_tls.certificate"] == (None, None)  # its table is absent
    assert {f"limits.{name}" for name in LIMITS} <= found.keys()
    assert list(found) == sorted(each.name for each in settings_of())
    assert found.keys() >= set(ALIKE)


def test_of_tokens_and_principals_the_names_alone_are_told() -> None:
    principal = {"name": "billing", "rights": ["read topic:*"], "certificates": ["CN:billing"]}
    config = check(configuration(tokens=[TOKEN], principals=[principal]))
    found = {each.name: each.value for each in in_force(config)}
    assert (found["tokens"], found["principals"]) == (["orders"], ["billing"])
