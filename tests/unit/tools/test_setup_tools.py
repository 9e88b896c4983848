"""The set-up of tools finds, links and installs. Shell scripts on a PATH of its own stand in for programs."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import setup_tools

Script = Callable[[str, str], Path]
JAVA_17 = """echo 'openjdk version "17.0.15" 2025-04-15' >&2"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    """Writes a shell script; those under ``path/`` are the only programs to be found."""
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.delenv("JAVA_HOME", raising=False)

    def write(name: str, body: str) -> Path:
        program = tmp_path / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)
        return program

    return write


@pytest.mark.parametrize(
    ("text", "version"),
    [("go1.26.8\n", (1, 26, 8)), (' "17.0.15" 2025', (17, 0, 15)), (' "21" 2023', (21,)), ("nothing", ())],
)
def test_a_version_is_the_first_dotted_number(text: str, version: tuple[int, ...]) -> None:
    assert setup_tools.version_in(text) == version


def test_java_home_comes_before_the_path(script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script("path/java", JAVA_17)
    home = script("home/bin/java", JAVA_17).parent.parent
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert setup_tools.java(tmp_path / "tools") == f"found: {home}"
    assert (tmp_path / "tools" / "java").resolve() == home


@pytest.mark.parametrize(
    "body",
    [
        """echo 'openjdk version "11.0.2"' >&2""",
        f'[ "$1" != {setup_tools.VECTOR_MODULE} ] || exit 1\n{JAVA_17}',
    ],
    ids=["too old", "without the vector module"],
)
def test_a_java_that_spark_cannot_use_is_passed_over(body: str, script: Script) -> None:
    assert not setup_tools.suits_spark(script("old/bin/java", body).parent.parent)


def test_a_java_without_the_vector_module_is_started_without_asking_for_it(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = script("jre/java", f'[ "$1" != {setup_tools.VECTOR_MODULE} ] || exit 1\necho "arguments: $*"\n{JAVA_17}')

    def install(requirement: str, into: Path) -> Path:
        assert requirement == setup_tools.JAVA_WHEEL
        script(str(into / "bin" / "python"), f"echo {bare}")
        return into

    monkeypatch.setattr(setup_tools, "install_wheel", install)
    tools = tmp_path / "tools"
    assert setup_tools.java(tools) == f"installed: {setup_tools.JAVA_WHEEL}"
    java = tools / "java" / "bin" / "java"
    told = subprocess.check_output([java, setup_tools.VECTOR_MODULE, "-version", "a b"], stderr=subprocess.DEVNULL)
    assert told.decode() == "arguments: -version a b\n"
    assert setup_tools.java(tools) == "is there"


def test_the_server_is_built_inside_the_tools_folder_and_the_build_is_removed(script: Script, tmp_path: Path) -> None:
    build = 'mkdir -p "$GOBIN"; echo "$* $GOPATH $GOCACHE" > "$GOBIN/server"'
    script("path/go", f"PATH={os.defpath}\ncase $1 in env) echo go1.21.0;; *) {build};; esac")
    tools = tmp_path / "tools"
    assert setup_tools.toxiproxy(tools) == f"built with {tmp_path / 'path' / 'go'}"
    command, module, *places = (tools / "bin" / "toxiproxy-server").read_text().split()
    assert (command, module) == ("install", setup_tools.TOXIPROXY)
    assert all(place.startswith(str(tools)) for place in places)
    assert [path.name for path in tools.iterdir()] == ["bin"]


def test_a_go_that_is_too_old_is_not_used(script: Script) -> None:
    script("path/go", "echo go1.20.14")
    assert setup_tools.find_go() is None


def test_a_tool_that_cannot_be_had_is_one_line_and_a_failure(
    script: Script, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script("path/go", "case $1 in env) echo go1.26;; *) echo looking; echo no network; exit 1;; esac")
    script("path/toxiproxy", "")
    assert setup_tools.main(["toxiproxy"], tmp_path / "tools") == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("toxiproxy: CANNOT BE HAD")
    assert line.endswith("no network")


def test_promtool_comes_out_of_the_package_and_nothing_else_stays(script: Script, tmp_path: Path) -> None:
    script("path/apt-get", f"PATH={os.defpath}\necho $* > prometheus_2_amd64.deb")
    script("path/dpkg-deb", f"PATH={os.defpath}\nmkdir -p $3/usr/bin; cat $2 > $3/usr/bin/promtool")
    tools = tmp_path / "tools"
    assert setup_tools.promtool(tools) == "unpacked: prometheus_2_amd64.deb"
    assert (tools / "bin" / "promtool").read_text() == "download -qq prometheus\n"
    assert [path.name for path in tools.iterdir()] == ["bin"]
    assert setup_tools.promtool(tools) == "is there"


def test_without_apt_promtool_cannot_be_had(script: Script, tmp_path: Path) -> None:
    script("path/other", "exit 0")
    with pytest.raises(setup_tools.CannotHave):
        setup_tools.promtool(tmp_path / "tools")


def test_a_browser_on_the_path_is_linked_with_its_driver(script: Script, tmp_path: Path) -> None:
    programs = [script(f"path/{name}", "") for name in setup_tools.CHROMIUM]
    tools = tmp_path / "tools"
    assert setup_tools.chromium(tools) == f"found: {programs[0]}, {programs[1]}"
    assert [(tools / "bin" / name).readlink() for name in setup_tools.CHROMIUM] == programs
    assert setup_tools.chromium(tools) == "is there"


def test_a_browser_without_its_driver_is_installed_by_root_alone(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script("path/chromium", "")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(setup_tools.CannotHave, match="only root can install them"):
        setup_tools.chromium(tmp_path / "tools")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    driver = tmp_path / "path" / "chromedriver"
    install = f"/bin/touch {driver} && /bin/chmod 755 {driver}"
    script("path/apt-get", f'[ "$1" = update ] || {{ {install}; }}')
    assert setup_tools.chromium(tmp_path / "tools") == f"found: {tmp_path}/path/chromium, {driver}"


def test_axe_is_installed_once_for_each_lock(script: Script, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    script("path/npm", f"/bin/mkdir -p {tools}/npm/node_modules/axe-core; echo asked >> {tmp_path}/asked")
    assert setup_tools.axe(tools) == "installed: npm ci"
    assert setup_tools.axe(tools) == "is there"
    (tools / "npm" / "package-lock.json").write_text("{}")
    assert setup_tools.axe(tools) == "installed: npm ci"
    assert (tmp_path / "asked").read_text().split() == ["asked", "asked"]
