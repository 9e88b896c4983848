"""The chart makes objects that Kubernetes takes, and each pod's configuration is one that its node takes."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml  # type: ignore[import-untyped]
from click.testing import CliRunner
from sources import ROOT

from stockade.cli.main import main
from stockade.cli.node.supervisor import STOP_TIMEOUT_S
from stockade.cli.service.environment import load
from stockade.cluster.config import LEDGER_LIMITS, LIMITS, LedgerSection, NodeConfig, RaftSection
from stockade.partition.version import VERSION

from .image import variables

helm = pytest.importorskip("helm_python", reason="no Helm here: requirements/deploy.txt has it")
kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="requirements/deploy.txt has it")

CHART = ROOT / "ops" / "helm" / "stockade"
KUBERNETES = ("1.28", "1.33", "1.36")
ZONES = [{"name": zone, "founders": 1, "nodes": 1} for zone in "abc"]
CASES: dict[str, dict[str, Any]] = {
    "as it is": {},
    "five nodes, two of which join": {"nodes": 5},
    "a StatefulSet for each zone": {"zones": [{**ZONES[0], "nodes": 2}, *ZONES[1:]]},
    "certificates of clients are required": {"tls": {"clientCertificates": "required"}},
    "open, without TLS": {"tls": {"enabled": False}, "principals": {"openToAll": True}},
    "everything said": {
        "image": {"digest": "sha256:" + "ab" * 32, "pullSecrets": ["registry"]},
        "settings": {
            "limits": {"wal_bytes_max": 1073741824, "topic_retention_ms": -1},
            "ledger": {"retention_ms": -1, "retention_bytes": 1125899906842624},
            "raft": {"heartbeat_ms": 160},
            "allowed_hosts": ["a.example"],
        },
        "tiered": {"place": "s3://old/house?region=eu-1", "secret": "bucket"},
        "storage": {"className": "fast"},
        "networkPolicy": {"clients": [{"podSelector": {"matchLabels": {"app": "orders"}}}]},
        "serviceMonitor": {
            "enabled": True,
            "labels": {"release": "prometheus"},
            "authorization": {"secret": "reader"},
            "tls": {"secret": "prometheus"},
        },
        "podAnnotations": {"a": "b"},
        "podLabels": {"c": "d"},
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "dedicated", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {}},
        "priorityClassName": "high",
    },
}
PRINCIPALS = '[[principals]]\nname = "operators"\nrights = ["all"]\n'


def rendered(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The objects that Helm makes of the chart with these values."""
    with helm.Chart.load(str(CHART)) as chart:
        chart.validate_schema(dict(values))
        files = chart.render(dict(values), name="prod", namespace="data")
    texts = [text for name, text in files.items() if name.endswith(".yaml")]
    return [each for text in texts for each in yaml.safe_load_all(text) if each]


def of_kind(objects: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [each for each in objects if each["kind"] == kind]


def pods(objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The template of each pod, by the pod's name."""
    sets = of_kind(objects, "StatefulSet")
    return {
        f"{each['metadata']['name']}-{number}": each["spec"]["template"]
        for each in sets
        for number in range(each["spec"]["replicas"])
    }


@pytest.mark.parametrize("values", CASES.values(), ids=CASES)
@pytest.mark.parametrize("version", KUBERNETES)
def test_kubernetes_takes_the_objects_of_the_chart(version: str, values: Mapping[str, Any]) -> None:
    for each in rendered(values):
        if each["kind"] != "ServiceMonitor":  # Kubernetes has no schema of it
            kubernetes_validate.validate(each, version, strict=True)


def test_helm_lints_the_chart() -> None:
    found = helm.lint(str(CHART), strict=True)
    assert [each["error"] for each in found["messages"]] == ["icon is recommended"]
    assert found["errors"] == []


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the secret of the certificates has, for the pods of all cases."""
    folder = tmp_path_factory.mktemp("certs") / "tls"
    names = [f"prod-stockade-{number}" for number in range(5)] + [
        f"prod-stockade-{zone}-{k}" for zone in "abc" for k in "01"
    ]
    made = CliRunner().invoke(main, ["certs", "--out", str(folder), "--cluster-id", "stockade", *names])
    assert made.exit_code == 0, made.output
    return folder


def configurations(values: Mapping[str, Any], certificates: Path, folder: Path) -> dict[str, NodeConfig]:
    """What each node is configured with: its file and the environment of its container, as the image adds to it."""
    objects = rendered(values)
    (folder / "principals.toml").write_text(PRINCIPALS)
    found = {}
    for pod, template in pods(objects).items():
        (container,) = template["spec"]["containers"]
        given = {each["name"]: each.get("value", pod).replace("$(POD)", pod) for each in container["env"]}
        file = folder / Path(given["STOCKADE_CONFIG"]).name
        (texts,) = of_kind(objects, "ConfigMap")
        file.write_text(texts["data"][file.name].replace("/etc/stockade/tls", str(certificates)))
        environ = {**variables(), **given}
        if "STOCKADE_PRINCIPALS_FILE" in environ:
            environ["STOCKADE_PRINCIPALS_FILE"] = str(folder / "principals.toml")
        found[pod] = load(file, environ=environ)
    return found


@pytest.mark.parametrize("values", CASES.values(), ids=CASES)
def test_each_node_takes_its_configuration_and_all_founders_agree(
    values: Mapping[str, Any], certificates: Path, tmp_path: Path
) -> None:
    found = configurations(values, certificates, tmp_path)
    founders = {pod: config for pod, config in found.items() if not config.join}
    assert len(founders) == 3
    assert {tuple(config.members) for config in founders.values()} == {tuple(next(iter(founders.values())).members)}
    assert {member.node_id for config in founders.values() for member in config.members} == founders.keys()
    for pod, config in found.items():
        assert config.node_id == pod
        assert config.me.raft == f"{pod}.prod-stockade-nodes.data.svc.cluster.local:7201"
        assert len(config.members) == (1 if config.join else 3)
        assert config.open_to_all != bool(config.principals)
    assert len({tuple(config.controllers) for config in founders.values()}) == 1


def test_each_zone_has_a_statefulset_of_its_own_and_its_nodes_say_so(certificates: Path, tmp_path: Path) -> None:
    values = CASES["a StatefulSet for each zone"]
    assert {pod: config.me.zone for pod, config in configurations(values, certificates, tmp_path).items()} == {
        **{f"prod-stockade-{zone}-0": zone for zone in "abc"},
        "prod-stockade-a-1": "a",
    }
    sets = of_kind(rendered(values), "StatefulSet")
    selectors = [each["spec"]["selector"]["matchLabels"] for each in sets]
    assert len({json.dumps(each) for each in selectors}) == 3, "no set takes another's pods for its own"
    assert {each["spec"]["updateStrategy"]["type"] for each in sets} == {"OnDelete"}
    (budget,) = of_kind(rendered(values), "PodDisruptionBudget")
    assert budget["spec"]["maxUnavailable"] == 1
    assert all(budget["spec"]["selector"]["matchLabels"].items() <= each.items() for each in selectors)


def test_nodes_find_each_other_before_they_are_ready_and_are_replaced_one_by_one() -> None:
    objects = rendered({})
    headless, clients = of_kind(objects, "Service")
    (nodes,) = of_kind(objects, "StatefulSet")
    assert headless["metadata"]["name"] == nodes["spec"]["serviceName"]
    assert (headless["spec"]["clusterIP"], headless["spec"]["publishNotReadyAddresses"]) == ("None", True)
    assert "publishNotReadyAddresses" not in clients["spec"]
    assert nodes["spec"]["podManagementPolicy"] == "Parallel", "the founders wait for each other"
    assert nodes["spec"]["updateStrategy"]["type"] == "RollingUpdate"


@pytest.mark.parametrize(
    "values", [{}, CASES["certificates of clients are required"]], ids=["by kubelet", "by the node"]
)
def test_each_probe_asks_the_path_for_its_purpose(values: Mapping[str, Any]) -> None:
    (container,) = next(iter(pods(rendered(values)).values()))["spec"]["containers"]
    asked = {name: container[f"{name}Probe"] for name in ("startup", "readiness", "liveness")}
    paths = {
        name: probe["httpGet"]["path"] if "httpGet" in probe else probe["exec"]["command"][-1]
        for name, probe in asked.items()
    }
    # Neither a partition without a leader nor the controllers' outage keeps a pod from the Service, or has it killed.
    assert paths == {"startup": "/healthz", "readiness": "/readyz/data", "liveness": "/healthz"}
    if values:
        assert all(probe["exec"]["command"][:3] == ["stockade", "probe", "--path"] for probe in asked.values())
    else:
        assert {probe["httpGet"]["scheme"] for probe in asked.values()} == {"HTTPS"}


def test_a_pod_has_no_rights_no_variables_of_services_and_time_to_stop() -> None:
    for template in pods(rendered({})).values():
        spec = template["spec"]
        (container,) = spec["containers"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert not container["securityContext"]["allowPrivilegeEscalation"]
        assert (spec["automountServiceAccountToken"], spec["enableServiceLinks"]) == (False, False)
        assert spec["terminationGracePeriodSeconds"] > STOP_TIMEOUT_S


def test_only_nodes_reach_the_raft_port() -> None:
    (policy,) = of_kind(rendered({}), "NetworkPolicy")
    nodes, clients = policy["spec"]["ingress"]
    assert nodes["from"] == [{"podSelector": policy["spec"]["podSelector"]}]
    assert clients["ports"] == [{"port": "http"}]


def test_prometheus_shows_the_certificate_and_the_token_that_it_is_given() -> None:
    def endpoint(**monitor: Any) -> Any:
        values = {"tls": {"clientCertificates": "required" if monitor else "optional"}}
        (found,) = of_kind(rendered({**values, "serviceMonitor": {"enabled": True, **monitor}}), "ServiceMonitor")
        (only,) = found["spec"]["endpoints"]
        return only

    plain = endpoint()
    assert set(plain["tlsConfig"]) == {"ca", "serverName"}
    assert "authorization" not in plain
    given = endpoint(authorization={"secret": "reader"}, tls={"secret": "prometheus", "key": "client.key"})
    assert given["authorization"] == {"credentials": {"name": "reader", "key": "token"}}
    assert given["tlsConfig"]["cert"] == {"secret": {"name": "prometheus", "key": "tls.crt"}}
    assert given["tlsConfig"]["keySecret"] == {"name": "prometheus", "key": "client.key"}


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({"tls": {"clientCertificates": "required"}, "serviceMonitor": {"enabled": True}}, "serviceMonitor.tls.secret"),
        ({"replicas": 5}, "replicas"),
        ({"founders": 0}, "founders"),
        ({"tls": {"secret": ""}}, "secret"),
        ({"principals": {"secret": ""}}, "secret"),
        ({"clusterId": "a b"}, "clusterId"),
        ({"terminationGracePeriodSeconds": 10}, "terminationGracePeriodSeconds"),
        ({"settings": {"limts": {}}}, "limts"),
        ({"settings": {"limits": {"wal_byte_max": 1073741824}}}, "wal_byte_max"),
        ({"settings": {"limits": {"wal_bytes_max": 1}}}, "wal_bytes_max"),
        ({"settings": {"ledger": {"retention_ms": 0}}}, "retention_ms"),
        ({"storage": {"size": "50"}}, "size"),
        ({"nodes": 2}, "founders are nodes, too"),
        ({"zones": [{"name": "a", "founders": 0, "nodes": 1}]}, "no zone has a founder"),
    ],
)
def test_values_that_make_no_cluster_are_refused(values: Mapping[str, Any], fault: str) -> None:
    with pytest.raises(helm.HelmError, match=fault):
        rendered(values)


def test_a_change_of_settings_replaces_the_pods_and_a_further_node_replaces_none() -> None:
    def template(values: Mapping[str, Any]) -> Any:
        return pods(rendered(values))["prod-stockade-0"]

    assert template({"nodes": 5}) == template({})
    assert template({"settings": {"limits": {"wal_bytes_max": 1073741824}}}) != template({})
    assert template({"clusterDomain": "cluster.example"}) != template({})
    assert template({"tiered": {"place": "s3://old/house"}}) != template({"tiered": {"place": "s3://new/house"}})


def test_the_chart_takes_the_settings_of_a_node_within_their_bounds(certificates: Path, tmp_path: Path) -> None:
    """It took any name and number above 0, and the pods did not start; -1 as a retention it refused."""
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    tables = schema["properties"]["settings"]["properties"]
    limits = {name: (each["minimum"], each["maximum"]) for name, each in tables["limits"]["properties"].items()}
    assert limits == LIMITS
    ledger = {name: each["anyOf"][1] for name, each in tables["ledger"]["properties"].items()}
    assert {name: (each["minimum"], each["maximum"]) for name, each in ledger.items()} == LEDGER_LIMITS
    numbers = {field.name for field in msgspec.structs.fields(RaftSection) if field.type is int}
    assert tables["raft"]["properties"].keys() == numbers
    found = configurations(CASES["everything said"], certificates, tmp_path)["prod-stockade-0"]
    assert (found.limits.topic_retention_ms, found.ledger) == (-1, LedgerSection(-1, 1 << 50))


def test_the_chart_is_of_this_version() -> None:
    about = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert (about["appVersion"], about["version"]) == (VERSION, VERSION)
