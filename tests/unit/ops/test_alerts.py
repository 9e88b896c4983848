"""Alerts and dashboard ask for series that nodes have, each alert has a page, and promtool agrees that each one fires.

Without promtool (`python tools/setup_tools.py promtool` finds or unpacks it) only the form of the rules is checked.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dashboard
import pytest
import yaml  # type: ignore[import-untyped]
from reference_pages import PROCESS
from sources import ROOT

from stockade.cli.backup.schedule import GAUGES
from stockade.cli.canary.figures import SERIES as CANARY
from stockade.http_api.request.metrics import _APPENDS
from stockade.http_api.request.series import SERIES
from stockade.http_api.routes import routes
from stockade.partition.errors import BY_CODE

OPS = ROOT / "ops"
RUNBOOKS = ROOT / "docs" / "runbooks"
PROMTOOL = ROOT / ".tools" / "bin" / "promtool"
GIVEN = {"job", "instance"}
"""Labels that Prometheus adds to each series of a node."""
DURATION = re.compile(r"(\d+(ms|[smhdwy]))+\Z")
SUFFIXES = ("_bucket", "_sum", "_count")


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((OPS / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    assert len({group["name"] for group in groups}) == len(groups)
    return [rule for group in groups for rule in group["rules"]]


def known() -> dict[str, set[str]]:
    """The labels of each series that a query may name."""
    found = {name.strip("`"): set(GIVEN) for name, *_ in PROCESS} | {"up": set(GIVEN)}
    for series in (*SERIES, *CANARY):
        labels = {*series.labels, *GIVEN}
        if series.kind == "histogram":
            found |= {series.name + suffix: labels | ({"le"} if suffix == "_bucket" else set()) for suffix in SUFFIXES}
        else:
            found[series.exposed] = labels
    return found | {f"stockade_backup_{name}": set(GIVEN) for name in GAUGES}


def faults(query: str) -> Iterator[str]:
    """Series and labels of a query that no node has, and codes that no node answers."""
    labels_of = known()
    names = re.findall(r"\b(?:stockade|process)_\w+|\bup\b", query)
    yield from (f"no series {name}" for name in names if name not in labels_of)
    for name, selection in re.findall(r"(\w+)\{([^{}]*(?:\"[^\"]*\"[^{}]*)*)\}", query):
        labels = re.findall(r"(\w+)=~?\"", selection)
        yield from (f"{name} has no label {label}" for label in labels if label not in labels_of.get(name, set()))
        for codes in re.findall(r"code=~?\"([^\"]*)\"", selection):
            yield from (f"no code {code}" for code in codes.split("|") if code not in BY_CODE)
    together = set[str]().union(*(labels_of.get(name, set()) for name in names))
    for group in re.findall(r"\bby \(([^)]*)\)", query):
        yield from (f"nothing here has a label {label}" for label in group.split(", ") if label not in together)


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_an_alert_asks_for_series_and_labels_that_nodes_have(rule: dict[str, Any]) -> None:
    assert re.search(r"\b(stockade|process|up)\b|stockade_|process_", rule["expr"])
    assert not list(faults(rule["expr"]))
    of_nodes = re.findall(r"\bstockade_(?!backup_)|\bprocess_", rule["expr"])
    assert len(of_nodes) <= rule["expr"].count('job="stockade')


@pytest.mark.parametrize(
    ("query", "fault"),
    [
        ("rate(stockade_http_requests[5m])", "no series stockade_http_requests"),
        ('stockade_raft_groups{rank="leader"}', "stockade_raft_groups has no label rank"),
        ("sum by (node) (stockade_raft_groups)", "nothing here has a label node"),
        ('stockade_http_refusals_total{code=~"LEADER_NOT_AVAILABLE|NO_SUCH"}', "no code NO_SUCH"),
        ("stockade_log_fsync_seconds > 1", "no series stockade_log_fsync_seconds"),
    ],
)
def test_a_query_for_a_series_that_no_node_has_is_found(query: str, fault: str) -> None:
    assert list(faults(query)) == [fault]


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_an_alert_has_the_form_of_a_rule_a_severity_and_a_page(rule: dict[str, Any]) -> None:
    name = rule["alert"]
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert re.fullmatch(r"Stockade[A-Z]\w+", name)
    assert DURATION.match(rule.get("for", "0m"))
    assert rule["labels"]["severity"] in ("page", "ticket")
    assert set(rule["annotations"]) == {"summary", "runbook"}
    assert rule["annotations"]["runbook"] == f"docs/runbooks/{name}.md"
    text = (RUNBOOKS / f"{name}.md").read_text(encoding="utf-8")
    assert text.startswith(f"# {name}\n\n*{rule['labels']['severity'].capitalize()}.* ")
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        "## What it means",
        "## What clients notice",
        "## Look",
        "## Do",
    ]


@pytest.mark.parametrize("name", ["alerts.yml", "grafana/stockade.json"])
def test_the_time_of_appends_is_that_of_every_route_of_appends(name: str) -> None:
    text = (OPS / name).read_text(encoding="utf-8").replace('\\"', '"')
    asked = set(re.findall(r'route=~"([^"]*)"', text))
    assert asked
    posts = {("POST", route.path) for route in routes() if route.method == "POST"}
    for pattern in asked:
        assert {where for where in posts if re.fullmatch(pattern, where[1])} == set(_APPENDS)


def test_each_page_belongs_to_an_alert_and_the_how_to_names_them_all() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names)
    assert {page.stem for page in RUNBOOKS.glob("*.md")} == set(names)
    page = (ROOT / "docs" / "how-to" / "alerts.md").read_text(encoding="utf-8")
    assert re.findall(r"\[(\w+)\]\(\.\./runbooks/\1\.md\)", page) == names


def test_each_request_of_a_page_has_a_token() -> None:
    """The one that shows whether fencing fails was answered 401 by a secured cluster."""
    asked = re.findall(r"\bcurl [^\n]*", "\n".join(page.read_text(encoding="utf-8") for page in RUNBOOKS.glob("*.md")))
    assert asked
    assert [each for each in asked if '-H "Authorization: Bearer $STOCKADE_TOKEN"' not in each] == []


def test_each_alert_is_tried_both_ways() -> None:
    tried = yaml.safe_load((OPS / "alerts_test.yml").read_text(encoding="utf-8"))["tests"]
    cases = [case for test in tried for case in test["alert_rule_test"]]
    names = {rule["alert"] for rule in rules()}
    assert {case["alertname"] for case in cases if case.get("exp_alerts")} == names
    assert {case["alertname"] for case in cases if not case.get("exp_alerts")} == names


def promtool() -> str | None:
    return str(PROMTOOL) if PROMTOOL.exists() else shutil.which("promtool")


@pytest.mark.skipif(promtool() is None, reason="no promtool here: `python tools/setup_tools.py promtool` installs it")
@pytest.mark.parametrize("arguments", [["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]])
def test_promtool_accepts_the_rules_and_each_fires_when_it_should(arguments: list[str]) -> None:
    done = subprocess.run([str(promtool()), *arguments], cwd=OPS, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_dashboard_is_as_the_tool_writes_it_now() -> None:
    assert dashboard.OUT.read_text(encoding="utf-8") == dashboard.text(), "run `python tools/dashboard.py`"


def test_each_panel_asks_for_series_of_nodes_and_has_a_place_of_its_own() -> None:
    found = json.loads((OPS / "grafana" / "stockade.json").read_text(encoding="utf-8"))
    assert [variable["name"] for variable in found["templating"]["list"]] == ["source", "job", "instance"]
    taken = set[tuple[int, int]]()
    for panel in found["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= dashboard.GRID
        taken |= cells
        for target in panel.get("targets", ()):
            query = target["expr"].replace("[$__rate_interval]", "[5m]")
            assert "$S" not in query
            assert not list(faults(query)), (panel["title"], query)


def test_the_dashboard_and_the_alerts_together_look_at_every_series() -> None:
    """A series that neither shows is one that its reader has to know by name."""
    texts = [(OPS / name).read_text(encoding="utf-8") for name in ("alerts.yml", "grafana/stockade.json")]
    unseen = {each.name for each in SERIES if not any(each.name in text for text in texts)}
    assert unseen == set()


def test_paths_of_the_repository_that_the_pages_name_exist() -> None:
    for name in ("ops/alerts.yml", "ops/grafana/stockade.json"):
        assert name in (ROOT / "docs" / "how-to" / "alerts.md").read_text(encoding="utf-8")
        assert Path(ROOT / name).is_file()
