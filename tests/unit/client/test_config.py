import dataclasses
from pathlib import Path
from typing import Any

import pytest

from stockade.client.config import BOUNDS, ClientConfig, InvalidConfig


def test_all_faults_are_reported_at_once() -> None:
    with pytest.raises(InvalidConfig) as invalid:
        ClientConfig(bootstrap=("ftp://x", "nonsense"), linger_ms=-1, inflight_batches_max=6)
    assert [fault.split(":")[0] for fault in invalid.value.faults] == [
        "bootstrap",
        "bootstrap",
        "linger_ms",
        "inflight_batches_max",
    ]


def settings(name: str, value: int) -> dict[str, Any]:
    return {name: value}


@pytest.mark.parametrize("name", BOUNDS)
def test_a_value_outside_its_bounds_is_refused_and_the_edge_is_not_outside(name: str) -> None:
    least, greatest = BOUNDS[name]
    for value in (least - 1, greatest + 1):
        with pytest.raises(InvalidConfig) as invalid:
            ClientConfig(**settings(name, value))
        assert invalid.value.faults == [f"{name}: {value} is not an integer from {least} to {greatest}"]
    for value in (least, greatest):
        try:
            ClientConfig(**settings(name, value))
        except InvalidConfig as relation:
            assert "is not an integer" not in str(relation)


def test_every_number_has_bounds() -> None:
    assert {field.name for field in dataclasses.fields(ClientConfig)} == {
        *("bootstrap", "on_error", "token", "ca", "certificate", "key"),
        *BOUNDS,
    }


def test_an_unknown_rule_for_errors_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="halt_partition, continue"):
        ClientConfig(on_error="ignore")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "settings",
    [
        {"delivery_timeout_ms": 30_004},
        {"buffer_bytes_max": 2048, "batch_bytes_max": 4096},
        {"retry_backoff_ms": 100, "retry_backoff_ms_max": 99},
    ],
)
def test_values_that_contradict_each_other_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfig):
        ClientConfig(**settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"acks": 0},
        {"idempotent": False},
        {"retries_max": 0},
        {"inflight_batches_max": 6},
        {"delivery_timeout_ms": 30_004},
        {"buffer_bytes_max": 1 << 20, "batch_bytes_max": 2 << 20},
    ],
)
def test_112_nothing_that_would_cost_idempotence_or_order_can_be_set_and_nothing_is_quietly_changed(
    settings: dict[str, Any],
) -> None:
    with pytest.raises((InvalidConfig, TypeError)):
        ClientConfig(**settings)


def test_a_config_is_made_of_one_url_of_several_or_of_a_config() -> None:
    one = ClientConfig.of("http://a:1/")
    assert one.bootstrap == ("http://a:1",)
    assert ClientConfig.of("http://a:1, http://b:2").bootstrap == ("http://a:1", "http://b:2")
    assert ClientConfig.of(["http://a:1", "http://b:2"]).bootstrap == ("http://a:1", "http://b:2")
    assert ClientConfig.of(one) is one


def test_no_url_at_all_is_refused() -> None:
    with pytest.raises(InvalidConfig):
        ClientConfig(bootstrap=())


def test_the_documentation_tells_every_default_and_bound_as_it_is() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "python.md").read_text(encoding="utf-8")
    config = ClientConfig()
    for name, (least, greatest) in BOUNDS.items():
        assert f"\n| `{name}` | {getattr(config, name):,} | {least:,} to {greatest:,} | " in page, name
    for field in dataclasses.fields(config):
        assert f"`{field.name}`" in page, field.name
