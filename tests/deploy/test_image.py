"""The image, as far as it can be had without an engine: what the Dockerfile does is done, and what it starts runs; the
three nodes of the compose file, started as it starts them, are a cluster.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from integration.api import Topic, call, eventually, expect
from sources import ROOT

from stockade.cli.local_cluster.ports import free_ports
from stockade.partition.version import VERSION

from .image import DOCKERFILE, NOBODY, Image, instructions, unprivileged, variables, words

COMPOSE = ROOT / "ops" / "compose" / "compose.yml"
PROMETHEUS = ROOT / "ops" / "compose" / "prometheus.yml"
STOP_S = 60

pytestmark = pytest.mark.timeout(600)  # packages are installed


def tool(name: str) -> str:
    """A program that the lock of these tests installs beside Python, or one of this machine."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    return found if found is not None else pytest.skip(f"no {name} here: requirements/deploy.txt has it")


def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    done = subprocess.run([tool("hadolint"), DOCKERFILE], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_image_runs_as_a_user_without_rights_from_locked_packages_and_names_no_registry() -> None:
    found = instructions()
    (user,) = (text for name, text in found if name == "USER")
    assert re.fullmatch(r"[1-9][0-9]{4}:[1-9][0-9]{4}", user), "a number: Kubernetes compares it with runAsNonRoot"
    assert [text for name, text in found if name == "STOPSIGNAL"] == ["SIGTERM"]
    assert {text.split()[0] for name, text in found if name == "FROM"} == {"python:3.11-slim"}
    installs = [part for name, text in found if name == "RUN" for part in text.split(" && ") if "pip install" in part]
    assert len(installs) == 3
    assert all("--require-hashes" in each or "--no-deps /src/wheel/stockade-" in each for each in installs)
    assert words("HEALTHCHECK") == ["stockade", "probe"]


def test_the_dockerfile_ignores_no_file_that_it_needs() -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    taken = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    links = {path.name for path in (ROOT / "src" / "stockade").iterdir() if path.is_symlink()}
    assert links | {"src", "requirements", "pyproject.toml", "setup.py", "MANIFEST.in", "LICENSE", "README.md"} <= taken
    assert "*" in ignored


def test_the_image_has_the_release_and_nothing_to_install_with(image: Image, built: Path) -> None:
    assert image.wheel.read_bytes() == (built / image.wheel.name).read_bytes()
    installed = {
        path.name.partition("-")[0] for path in image.root.glob("opt/stockade/lib/python3*/site-packages/*.dist-info")
    }
    assert "pip" not in installed
    assert {"stockade", "pyarrow", "uvloop"} <= installed


def test_programs_that_pages_run_in_a_container_are_in_the_image() -> None:
    """The page ran `kill`, a program of procps, which is not in a slim image; a shell has a kill of its own."""
    pages = ROOT / "docs" / "how-to" / "deploy.md", ROOT / "ops" / "helm" / "stockade" / "templates" / "NOTES.txt"
    run = [found for page in pages for found in re.findall(r"exec [^`\n]*? -- (\S+)", page.read_text(encoding="utf-8"))]
    assert sorted(run) == ["sh", "stockade"]


def test_the_command_of_the_image_knows_its_commit(image: Image) -> None:
    commit = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=ROOT, text=True).strip()
    said = subprocess.check_output([image.program("stockade"), "--version"], env=image.environ({}), text=True, cwd="/")
    assert said == f"stockade {VERSION} ({commit})\n"


def composed() -> dict[str, Any]:
    """The compose file with its anchors resolved."""
    found: dict[str, Any] = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))
    return found


def test_compose_accepts_its_file() -> None:
    done = subprocess.run(
        [tool("docker-compose"), "--file", COMPOSE, "config", "--format", "json"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    services = json.loads(done.stdout)["services"]
    assert services.keys() == {"n1", "n2", "n3", "prometheus", "grafana"}
    assert services["n2"]["environment"] == composed()["services"]["n2"]["environment"], "as this test reads it"
    published = [port for service in services.values() for port in service["ports"]]
    assert {port["host_ip"] for port in published} == {"127.0.0.1"}
    mounted = [
        volume["source"] for service in services.values() for volume in service["volumes"] if volume["type"] == "bind"
    ]
    assert all(Path(source).exists() for source in mounted)


def test_a_container_has_time_to_hand_its_leaderships_over() -> None:
    for name in ("n1", "n2", "n3"):
        assert composed()["services"][name]["stop_grace_period"] == "60s"


def test_promtool_accepts_the_configuration_of_prometheus_with_the_alerts(tmp_path: Path) -> None:
    program = ROOT / ".tools" / "bin" / "promtool"
    if not program.exists():
        pytest.skip("no promtool here: `python tools/setup_tools.py promtool` installs it")
    shutil.copy(PROMETHEUS, tmp_path)
    shutil.copy(ROOT / "ops" / "alerts.yml", tmp_path)
    done = subprocess.run([program, "check", "config", tmp_path / PROMETHEUS.name], check=False, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_grafana_and_nodes_are_wired_to_each_other() -> None:
    services = composed()["services"]
    (job,) = yaml.safe_load(PROMETHEUS.read_text(encoding="utf-8"))["scrape_configs"]
    assert job["job_name"] == "stockade", "which the alerts select"
    assert job["static_configs"] == [{"targets": [f"{name}:7101" for name in ("n1", "n2", "n3")]}]
    provisioning = ROOT / "ops" / "grafana" / "provisioning"
    (source,) = yaml.safe_load((provisioning / "datasources" / "stockade.yml").read_text())["datasources"]
    (board,) = yaml.safe_load((provisioning / "dashboards" / "stockade.yml").read_text())["providers"]
    assert source["url"] == "http://prometheus:9090"
    assert f"../grafana/stockade.json:{board['options']['path']}/stockade.json:ro" in services["grafana"]["volumes"]


class Containers:
    """The nodes of the compose file as processes: its environment, with ports of this machine."""

    def __init__(self, image: Image, folder: Path) -> None:
        self.image, self.folder = image, folder
        self.names = ("n1", "n2", "n3")
        http, raft = free_ports(3), free_ports(3)
        self.http = dict(zip(self.names, http, strict=True))
        self._raft = dict(zip(self.names, raft, strict=True))
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def environ(self, name: str) -> dict[str, str]:
        """What the compose file and the image give a node."""
        given: Mapping[str, str] = composed()["services"][name]["environment"]
        inside = {key: variables()[key] for key in ("STOCKADE_HTTP", "STOCKADE_RAFT_LISTEN")}
        found = {key: self._here(value, name) for key, value in {**inside, **given}.items()}
        return {**found, "STOCKADE_DATA_DIR": str(self.folder / name)}

    def _here(self, text: str, name: str) -> str:
        text = text.replace("0.0.0.0:7101", f"0.0.0.0:{self.http[name]}")
        text = text.replace("0.0.0.0:7201", f"0.0.0.0:{self._raft[name]}")
        for number, other in enumerate(self.names, 1):
            text = text.replace(f"localhost:710{number}", f"localhost:{self.http[other]}")
            text = text.replace(f"{other}:7201", f"127.0.0.1:{self._raft[other]}")
        return text

    def __enter__(self) -> "Containers":
        for name in self.names:
            self._processes[name] = self.image.start(self.environ(name), self.folder / f"{name}.log")
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()

    def stop(self, name: str) -> int:
        self._processes[name].send_signal(signal.SIGTERM)
        return self._processes[name].wait(STOP_S)

    def log(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / f"{name}.log").read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def containers(image: Image, volume: Path) -> Iterator[Containers]:
    with Containers(image, volume) as running:
        yield running


@pytest.mark.processes
def test_three_nodes_started_as_the_compose_file_starts_them_are_a_cluster(containers: Containers) -> None:
    first, second = (f"http://127.0.0.1:{containers.http[name]}" for name in ("n1", "n2"))
    eventually(lambda: containers.image.is_healthy(containers.environ("n1")))
    eventually(lambda: call("GET", f"{second}/readyz").status == 200)
    cluster = expect(200, call("GET", f"{first}/v1/cluster"))
    assert {node["node_id"]: node["zone"] for node in cluster["nodes"]} == {"n1": "a", "n2": "b", "n3": "c"}
    topic = Topic(first, "orders")
    topic.create(partitions=3)
    expect(200, topic.append("before"))
    assert (containers.folder / "n1").stat().st_uid == (NOBODY if unprivileged() else os.geteuid())

    assert containers.stop("n1") == 0, "it handed its leaderships over and ended"
    assert not containers.image.is_healthy(containers.environ("n1"))
    expect(200, topic.at(second).append("after"))
    assert eventually(topic.at(second).values) == ["before", "after"]
    assert all({"time", "level", "node", "message"} <= line.keys() for line in containers.log("n1"))


def test_a_container_without_its_settings_says_which_are_missing(image: Image, tmp_path: Path) -> None:
    process = image.start({}, tmp_path / "log")
    assert process.wait(STOP_S) == 1
    said = (tmp_path / "log").read_text(encoding="utf-8")
    for name in ("node_id", "cluster_id", "members"):
        assert f"  - {name}: " in said
