"""Network namespaces as hosts: each node has an address of its own, and a virtual cable (veth) to a bridge.

Packets between two hosts can be dropped, in one direction or both, or at random; a cable can be unplugged. Needs root.
Leaving removes everything; if this process dies first, undo.py does.
"""

import ipaddress
import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import NamedTuple, Self

from .undo import UndoShell, is_root

TOOLS = {"ip": "iproute2", "iptables": "iptables", "nsenter": "util-linux"}
"""Programs that are needed, and their Debian packages."""


class NetworkFailed(OSError):
    """The network could not be made or changed; the message has the output of the program."""


def run(*command: str) -> str:
    """The output of a command. Raises NetworkFailed."""
    # A list of words, no shell.
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  # nosec B603
    if done.returncode:
        raise NetworkFailed(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def missing(tools: Sequence[str] = tuple(TOOLS)) -> str | None:
    """Which of these programs are missing, and what to install; None if none is."""
    absent = [tool for tool in tools if shutil.which(tool) is None]
    if not absent:
        return None
    packages = sorted({TOOLS[tool] for tool in absent})
    return f"missing: {', '.join(absent)} (Debian: apt install {' '.join(packages)})"


NETWORKS = ipaddress.ip_network("10.97.0.0/16")
"""Each set of hosts takes the first free /24 of it."""
HOSTS_MAX = 200


def why_not() -> str | None:
    """Why this machine cannot have such hosts; None if it can."""
    if not is_root():
        return "network namespaces need root"
    absent = missing()
    if absent is not None:
        return absent
    try:
        run("ip", "netns", "add", probe := f"stockade-probe-{os.getpid()}")
        run("ip", "netns", "del", probe)
    except NetworkFailed as error:
        return f"this kernel has no network namespaces: {error}"
    return None


class Rule(NamedTuple):
    """A rule of the packet filter on a host."""

    host: str
    words: tuple[str, ...]


class Hosts:
    """One host for each name. A context manager: the hosts exist inside it."""

    def __init__(self, names: Sequence[str]) -> None:
        if len(names) > HOSTS_MAX:
            raise NetworkFailed(f"{len(names)} hosts are more than {HOSTS_MAX}")
        self.names: list[str] = list(names)
        self.gateway: str = ""
        """The address of this process, and so of the clients, in that network."""
        self._addresses: dict[str, str] = {}
        self._tag = ""
        self._undo: UndoShell | None = None

    def __enter__(self) -> Self:
        self._undo = UndoShell()
        try:
            self._build(self._undo)
        except BaseException:
            self._undo.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._undo is not None:
            self._undo.close()

    @property
    def addresses(self) -> Mapping[str, str]:
        """The address of every host."""
        return self._addresses

    def prefix(self, name: str) -> tuple[str, ...]:
        """The words before a command that run it on a host, in the same process."""
        return "nsenter", f"--net=/run/netns/{self._space(name)}", "--"

    def drop(self, source: str, target: str) -> Rule:
        """Drop all packets from ``source`` to ``target`` until ``mend``. ``source`` is a host, or an address
        such as ``gateway``; so may ``target`` be: then the packets are dropped at the source.
        """
        if target in self._addresses:
            return self._add(target, "INPUT", "-s", self._addresses.get(source, source), "-j", "DROP")
        return self._add(source, "OUTPUT", "-d", target, "-j", "DROP")

    def lose(self, target: str, share: float) -> Rule:
        """Drop this share of the packets to ``target``, at random."""
        return self._add(
            target, "INPUT", "-m", "statistic", "--mode", "random", "--probability", f"{share:.3f}", "-j", "DROP"
        )

    def mend(self, rule: Rule) -> None:
        """Remove one rule; an equal rule of another fault stays."""
        run(*self.prefix(rule.host), "iptables", "-w", "-D", *rule.words)

    def _add(self, host: str, *words: str) -> Rule:
        run(*self.prefix(host), "iptables", "-w", "-A", *words)
        return Rule(host, words)

    def unplug(self, name: str) -> None:
        """Pull the host's cable."""
        run("ip", "link", "set", self._cable(name), "down")

    def plug(self, name: str) -> None:
        """Plug the host's cable in again."""
        run("ip", "link", "set", self._cable(name), "up")

    def _build(self, undo: UndoShell) -> None:
        network = self._claim(undo)
        self.gateway = str(network[254])
        self._addresses = {name: str(network[number]) for number, name in enumerate(self.names, start=1)}
        for name in self.names:
            self._make(name, undo)

    def _claim(self, undo: UndoShell) -> ipaddress.IPv4Network:
        """Make a bridge with an address in a free network. If two processes want the same network, the kernel decides:
        a bridge of that name can be made once.
        """
        for number, network in enumerate(NETWORKS.subnets(new_prefix=24)):
            assert isinstance(network, ipaddress.IPv4Network)
            tag = f"skd{number}"
            if tag in _links():
                continue
            try:
                run("ip", "link", "add", tag, "type", "bridge")
            except NetworkFailed:
                if tag in _links():
                    continue
                raise
            self._tag = tag
            undo.register("ip", "link", "del", tag)
            run("ip", "addr", "add", f"{network[254]}/24", "dev", tag)
            run("ip", "link", "set", tag, "up")
            return network
        raise NetworkFailed(f"every network of {NETWORKS} is taken: `ip link` shows their bridges, skd*")

    def _make(self, name: str, undo: UndoShell) -> None:
        space, cable = self._space(name), self._cable(name)
        undo.register("ip", "link", "del", cable)
        undo.register("ip", "netns", "del", space)
        run("ip", "netns", "add", space)
        run("ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", space)
        run("ip", "link", "set", cable, "master", self._tag, "up")
        run("ip", "-n", space, "addr", "add", f"{self._addresses[name]}/24", "dev", "eth0")
        run("ip", "-n", space, "link", "set", "eth0", "up")
        run("ip", "-n", space, "link", "set", "lo", "up")

    def _space(self, name: str) -> str:
        return f"{self._tag}-{name}"

    def _cable(self, name: str) -> str:
        return f"{self._tag}-{self.names.index(name)}"


def _links() -> set[str]:
    return {link["ifname"] for link in json.loads(run("ip", "-j", "link"))}
