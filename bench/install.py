"""The peers' programs: found in ``.tools/peers``, or installed there. Nothing is written elsewhere.

etcd, nats-server and the loads in Go are built by Go; Kafka comes through Maven; RabbitMQ, with Erlang, is Debian's
package, unpacked but not installed. The function of each peer returns its version, and raises CannotHave with a reason.
"""

import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "tools"))

from setup_tools import CannotHave, find_go, run, version_in

PEERS = Path(__file__).resolve().parents[1] / ".tools" / "peers"
NATS = ("github.com/nats-io/nats-server/v2", "v2.15.2")
ETCD = ("go.etcd.io/etcd/server/v3", "v3.7.3")
KAFKA = "4.1.1"
LOADS = Path(__file__).with_name("loads") / "go"

_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>bench</groupId><artifactId>bench</artifactId><version>1</version>
  <dependencies><dependency>
    <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{version}</version>
  </dependency></dependencies>
</project>
"""

_PLACES = {
    "kafka": f"kafka-{KAFKA}",
    "rabbitmq": "debian/usr/lib/rabbitmq/bin",
    "erlang": "debian/usr/lib/erlang/bin",
}


def place(name: str) -> Path:
    """Where a program, or a folder of programs, is after its installation."""
    if name == "java":
        return Path(shutil.which("java") or "java")
    return PEERS / _PLACES.get(name, name)


def etcd() -> str:
    """Build etcd from its Go module."""
    _built("etcd", *ETCD)
    return f"etcd {ETCD[1]}"


def nats() -> str:
    """Build NATS from its Go module, and the program that loads it."""
    _built("nats-server", *NATS)
    _loads()
    return f"nats-server {NATS[1]}"


def kafka() -> str:
    """Fetch Kafka's jars, and those that they need, by Maven."""
    if shutil.which("java") is None:
        raise CannotHave("there is no java")
    try:
        import confluent_kafka  # noqa: PLC0415  # it may be missing
    except ImportError as error:
        raise CannotHave("the Python package confluent-kafka is missing: `make bench` has it") from error
    if not place("kafka").exists():
        if shutil.which("mvn") is None:
            raise CannotHave("there is no Maven (mvn)")
        with _scratch() as name:
            build = Path(name)
            (build / "pom.xml").write_text(_POM.format(version=KAFKA), encoding="utf-8")
            jars = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={build / 'jars'}"]
            run(["mvn", "-q", "-B", "-f", build / "pom.xml", f"-Dmaven.repo.local={build / 'm2'}", *jars])
            (build / "jars").rename(place("kafka"))
    return f"Kafka {KAFKA}, confluent-kafka {confluent_kafka.__version__}, {_java()}"


def rabbitmq() -> str:
    """Unpack Debian's package and those that it needs, and build the program that loads it."""
    folder = PEERS / "debian"
    if not folder.exists():
        if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
            raise CannotHave("it comes as Debian's package, and this is no Debian")
        planned = run(["apt-get", "install", "--simulate", "--no-install-recommends", "rabbitmq-server"])
        packages = re.findall(r"^Inst (\S+)", planned, re.MULTILINE)
        if "rabbitmq-server" not in packages:
            raise CannotHave("Debian's package is installed already, and would have to be started by its own account")
        with _scratch() as name:
            build = Path(name)
            run(["sh", "-c", 'cd "$1" && shift && apt-get download "$@"', "sh", build, *packages])
            for package in build.glob("*.deb"):
                run(["dpkg-deb", "-x", package, build / "debian"])
            _relocate_erlang(build / "debian/usr/lib/erlang/bin/erl", folder / "usr/lib/erlang")
            (build / "debian").rename(folder)
    _loads()
    version = next((folder / "usr/lib/rabbitmq/lib").iterdir()).name.removeprefix("rabbitmq_server-")
    erlang = re.search(r'"Erlang/OTP","([^"]+)"', (folder / "usr/lib/erlang/releases/RELEASES").read_text("utf-8"))
    return f"RabbitMQ {version}, Erlang {erlang.group(1) if erlang else 'of unknown version'}"


def _relocate_erlang(script: Path, home: Path) -> None:
    """Put ``home`` into Erlang's start script, which names the folder that the package would be installed in."""
    text = script.read_text(encoding="utf-8")
    script.write_text(text.replace("ROOTDIR=/usr/lib/erlang", f"ROOTDIR={home}"), encoding="utf-8")


def _java() -> str:
    return "Java " + ".".join(map(str, version_in(run(["java", "-version"]).partition("version")[2])))


def _scratch() -> "tempfile.TemporaryDirectory[str]":
    """A temporary folder beside the programs, from which a finished program can be moved by a rename."""
    PEERS.mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryDirectory(dir=PEERS, prefix="build-", ignore_cleanup_errors=True)


def _built(program: str, module: str, version: str) -> None:
    """Build a program from a Go module, unless that version of it is there."""
    if (PEERS / f"{program}-{version}").exists():
        return
    with _scratch() as name:
        build = Path(name)
        go = _go(build)
        go("mod", "init", "bench")
        go("get", f"{module}@{version}")
        go("build", "-o", build / program, module)
        _keep(build / program, f"{program}-{version}", program)


def _loads() -> None:
    """Build the loads in Go. This is done each time, since Go knows whether it is needed."""
    with _scratch() as name:
        build = Path(name)
        for file in LOADS.iterdir():
            shutil.copy(file, build)
        _go(build)("build", "-o", build / "program", ".")
        (build / "program").replace(PEERS / "loads")


def _keep(program: Path, versioned: str, name: str) -> None:
    program.rename(PEERS / versioned)
    (PEERS / name).unlink(missing_ok=True)
    (PEERS / name).symlink_to(versioned)


def _go(folder: Path) -> Callable[..., str]:
    """A function that runs the go command in ``folder``, with its caches below PEERS."""
    found = find_go()
    if found is None:
        raise CannotHave("there is no Go that is new enough")
    # -modcacherw: otherwise Go's cache cannot be removed.
    places = {"GOPATH": PEERS / "go", "GOCACHE": PEERS / "go-cache", "GOFLAGS": "-modcacherw"}
    environment = {name: str(value) for name, value in places.items()}
    return lambda *arguments: run([found, "-C", folder, *arguments], environment)
