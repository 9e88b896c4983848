"""Network namespaces as hosts: each node has an address of its own, and a cable to a bridge.

What is between two of them can be cut in one direction only, made to lose packets, or unplugged. Needs root. Everything
is removed on leaving, and by the warden when this process dies before that.
"""

import ipaddress
import json
import os
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import NamedTuple, Self

from ..warden import Warden, is_root
from .commands import NetworkFailed, missing, run

NETWORKS = ipaddress.ip_network("10.97.0.0/16")
"""Each set of hosts takes the first /24 of it that this machine knows nothing of."""
HOSTS_MAX = 200


def why_not() -> str | None:
    """Why there can be no hosts here; None if there can."""
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
    """One host for each name. A context manager: inside it they exist."""

    def __init__(self, names: Sequence[str]) -> None:
        if len(names) > HOSTS_MAX:
            raise NetworkFailed(f"{len(names)} hosts are more than {HOSTS_MAX}")
        self.names: list[str] = list(names)
        self.gateway: str = ""
        """The address of this process in that network: where clients come from."""
        self._addresses: dict[str, str] = {}
        self._tag = ""
        self._warden: Warden | None = None

    def __enter__(self) -> Self:
        self._warden = Warden()
        try:
            self._build(self._warden)
        except BaseException:
            self._warden.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._warden is not None:
            self._warden.close()

    @property
    def addresses(self) -> Mapping[str, str]:
        """The address of every host."""
        return self._addresses

    def prefix(self, name: str) -> tuple[str, ...]:
        """The words that start a program on a host; the program takes the place of the process that they start."""
        return "nsenter", f"--net=/run/netns/{self._space(name)}", "--"

    def drop(self, source: str, target: str) -> Rule:
        """Nothing that ``source`` sends reaches ``target`` any more, until mended. ``source`` is a host, or an address
        such as ``gateway``; so may ``target`` be: then the source is kept from sending.
        """
        if target in self._addresses:
            return self._add(target, "INPUT", "-s", self._addresses.get(source, source), "-j", "DROP")
        return self._add(source, "OUTPUT", "-d", target, "-j", "DROP")

    def lose(self, target: str, share: float) -> Rule:
        """This share of the packets that come to ``target`` is lost, drawn by lot."""
        return self._add(
            target, "INPUT", "-m", "statistic", "--mode", "random", "--probability", f"{share:.3f}", "-j", "DROP"
        )

    def mend(self, rule: Rule) -> None:
        """Undo what was dropped or lost, once; the same that another one has dropped stays."""
        run(*self.prefix(rule.host), "iptables", "-w", "-D", *rule.words)

    def _add(self, host: str, *words: str) -> Rule:
        run(*self.prefix(host), "iptables", "-w", "-A", *words)
        return Rule(host, words)

    def unplug(self, name: str) -> None:
        """Pull the host's cable."""
        run("ip", "link", "set", self._cable(name), "down")

    def plug(self, name: str) -> None:
        """Put it in again."""
        run("ip", "link", "set", self._cable(name), "up")

    def _build(self, warden: Warden) -> None:
        network = self._claim(warden)
        self.gateway = str(network[254])
        self._addresses = {name: str(network[number]) for number, name in enumerate(self.names, start=1)}
        for name in self.names:
            self._make(name, warden)

    def _claim(self, warden: Warden) -> ipaddress.IPv4Network:
        """A bridge with an address in a network that is not in use. Two processes that want the same one are told apart
        by the kernel: a bridge of that name can be made once.
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
            warden.promise("ip", "link", "del", tag)
            run("ip", "addr", "add", f"{network[254]}/24", "dev", tag)
            run("ip", "link", "set", tag, "up")
            return network
        raise NetworkFailed(f"every network of {NETWORKS} is taken: `ip link` shows their bridges, skd*")

    def _make(self, name: str, warden: Warden) -> None:
        space, cable = self._space(name), self._cable(name)
        warden.promise("ip", "link", "del", cable)
        warden.promise("ip", "netns", "del", space)
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
