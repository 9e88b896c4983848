"""Configuration of one node: a TOML file, checked whole before anything starts, every fault named at once."""

import ipaddress
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

import msgspec

from ..partition.api.topics import TOPIC_RETENTION_MS
from ..raft.net.tls import Mode, Tls, TlsFault, TlsFiles
from . import machines
from .access.issuers import Issuer, Issuers, KeyFile, KeysFault, issuer_faults
from .access.principals import Principal, Token, principal_faults, token_faults
from .controller.topology import placement
from .controller.topology.nodes import NODES_MAX
from .controller.topology.replica_assignment import CONTROLLERS_MAX
from .https import HttpTls, HttpTlsSection
from .machines import Member
from .tiered.settings import tiered_faults

STORED_NAMES = ("wal", "groups", "partitions", "founders.json", "members.json", "principals.json", "reserve", "tiered")
"""Files and folders in ``data_dir`` in which a node stores data. Others there (configuration, certificates, logs) are
not its own.
"""


class TlsSection(msgspec.Struct, frozen=True):
    """[raft.tls]: encrypt the traffic between nodes. PEM files; relative paths are relative to the configuration.

    ``revoked``: a file that names nodes that are shut out, by id or fingerprint, one a line. ``mode``: what is allowed
    while a running cluster changes over to TLS.
    """

    ca: str
    certificate: str
    key: str
    revoked: str | None = None
    mode: Mode = "require"

    def load(self, cluster_id: str, node_id: str) -> Tls:
        """Read the files. Raises TlsFault."""
        return Tls(TlsFiles(self.ca, self.certificate, self.key, self.revoked), cluster_id, node_id, self.mode)


class RaftSection(msgspec.Struct, frozen=True):
    """[raft]: timing of elections, in milliseconds. A follower that hears nothing for a time drawn between min and max
    asks for votes; shorter times fail over faster and mistake a busy leader for a dead one sooner.
    """

    election_timeout_min_ms: int = 600
    election_timeout_max_ms: int = 1200
    heartbeat_ms: int = 150
    plaintext: bool = False
    tls: TlsSection | None = None


class LimitsSection(msgspec.Struct, frozen=True):
    """[limits]: sizes and times that bound a node.

    - ``request_timeout_ms``: after this time the outcome of a request is called unknown.
    - ``segment_bytes_max``, ``wal_file_bytes``: size of a segment, and of a file of the log.
    - ``wal_bytes_max``: size of the log beyond which groups take checkpoints to shorten it.
    - ``checkpoint_bytes``: bytes of commands after which a group takes a checkpoint anyway.
    - ``inspection_bytes_per_s``: how fast old segments are read again, to find bytes that have changed; 0: never.
    - ``http_connections_max``, ``http_address_connections_max``: connections of clients that are open at a time, all
      together and of one address (an IPv4 address, or a /64 network of IPv6).
    - ``disk_soft_free_bytes``: with less free on the disk of its data folder a node refuses appends; 0: it never does.
    - ``disk_hard_free_bytes``: with less free there it takes no copies of partitions.
    - ``disk_reserve_bytes``: held back there for the moment when the disk is full; 0: nothing.
    - ``disk_stall_ms``: a write of the log that takes so long stops the node.
    - ``topic_retention_ms``: how long a topic keeps records whose creator says nothing of its retention (-1: for good);
      of the topics that are created while this node leads the controller group.
    """

    request_timeout_ms: int = 10_000
    segment_bytes_max: int = 64 * 1024 * 1024
    wal_file_bytes: int = 64 * 1024 * 1024
    wal_bytes_max: int = 512 * 1024 * 1024
    checkpoint_bytes: int = 64 * 1024 * 1024
    inspection_bytes_per_s: int = 1024 * 1024
    http_connections_max: int = 10_000
    http_address_connections_max: int = 5_000
    disk_soft_free_bytes: int = 2 * 1024 * 1024 * 1024
    disk_hard_free_bytes: int = 1024 * 1024 * 1024
    disk_reserve_bytes: int = 64 * 1024 * 1024
    disk_stall_ms: int = 30_000
    topic_retention_ms: int = TOPIC_RETENTION_MS


class LedgerSection(msgspec.Struct, frozen=True):
    """[ledger]: how long the ledger keeps its entries, and how many bytes of them (-1: no bound); the same on every
    node. No request can have them dropped before.
    """

    retention_ms: int = 400 * 86_400_000
    retention_bytes: int = 32 * 1024 * 1024 * 1024


class TieredSection(msgspec.Struct, frozen=True):
    """[tiered]: where old segments go, of topics with a local retention: a folder that all nodes see, or the URL of an
    object store, with further arguments (s3://BUCKET/PATH?region=…) and without credentials, which are taken from where
    the store's other tools have them. All nodes name the same place. ``cache_bytes`` in ``data_dir`` keep the objects
    that were read last; a read waits ``timeout_ms`` at most for the place.
    """

    place: str
    cache_bytes: int = 1024 * 1024 * 1024
    timeout_ms: int = 10_000


HOSTS_MAX = 64
"""Most names in ``allowed_hosts``."""
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]{1,253})(:[0-9]{1,5})?\Z")
_PORT = re.compile(r":[0-9]+\Z")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}\Z")
_URL = re.compile(r"https?://[^/?#@\s]+\Z")
LIMITS = {
    "request_timeout_ms": (100, 300_000),
    "segment_bytes_max": (1 << 20, 1 << 31),
    "wal_file_bytes": (1 << 20, 1 << 30),
    "wal_bytes_max": (1 << 22, 1 << 40),
    "checkpoint_bytes": (1 << 20, 1 << 40),
    "inspection_bytes_per_s": (0, 1 << 40),
    "http_connections_max": (16, 1_000_000),
    "http_address_connections_max": (16, 1_000_000),
    "disk_soft_free_bytes": (0, 1 << 50),
    "disk_hard_free_bytes": (0, 1 << 50),
    "disk_reserve_bytes": (0, 1 << 40),
    "disk_stall_ms": (1_000, 600_000),
    "topic_retention_ms": (-1, 1 << 53),
}
LEDGER_LIMITS = {"retention_ms": (86_400_000, 1 << 50), "retention_bytes": (1 << 28, 1 << 50)}
_Section = TypeVar("_Section", bound=msgspec.Struct)
Address = tuple[str, int]


class ConfigError(Exception):
    """The configuration cannot be used. ``faults`` has one sentence for each fault."""

    def __init__(self, faults: list[str]) -> None:
        self.faults = faults
        super().__init__("; ".join(faults))


class NodeConfig(msgspec.Struct, frozen=True):
    """The configuration of a node, or with ``processes`` of a machine that runs so many.

    - ``http``, ``raft_listen``: host:port to listen on.
    - ``members``: the nodes that found the cluster, this one included; the same on every node but for the Raft
      addresses, which may differ (a proxy between two nodes, say). Members are nodes, never machines: the
      nodes of a machine stand there in its place. A node that joins a running cluster has itself there.
    - ``join``: of a node that joins a running cluster: base URLs of nodes to ask.
    - ``allowed_hosts``: further names, host or host:port, by which browsers and, in an open cluster, clients reach the
      node.
    - ``http_plaintext``: let ``http`` be reached by other machines without [http_tls].
    - ``open_to_all``: let other machines reach it even without principals, tokens and required certificates.
    """

    node_id: str
    cluster_id: str
    data_dir: str
    http: str
    raft_listen: str
    members: list[Member]
    raft: RaftSection = RaftSection()
    limits: LimitsSection = LimitsSection()
    ledger: LedgerSection = LedgerSection()
    join: list[str] = []
    tokens: list[Token] = []
    principals: list[Principal] = []
    issuers: list[Issuer] = []
    processes: int | None = None
    http_tls: HttpTlsSection | None = None
    allowed_hosts: list[str] = []
    http_plaintext: bool = False
    open_to_all: bool = False
    tiered: TieredSection | None = None

    def nodes(self) -> "list[NodeConfig]":
        """The configurations of the nodes that the machine runs; this one alone without ``processes``."""
        if self.processes is None:
            return [self]
        return [self._node(number) for number in range(1, self.processes + 1)]

    def _node(self, number: int) -> "NodeConfig":
        name = machines.node_name(self.node_id, number)
        return msgspec.structs.replace(
            self,
            node_id=name,
            data_dir=str(Path(self.data_dir) / name),
            http=machines.shifted(self.http, number),
            raft_listen=machines.shifted(self.raft_listen, number),
            processes=None,
            http_tls=self._http_tls(number),
        )

    def _http_tls(self, number: int) -> HttpTlsSection | None:
        if self.http_tls is None or self.http_tls.plain_listen is None:
            return self.http_tls
        return msgspec.structs.replace(self.http_tls, plain_listen=machines.shifted(self.http_tls.plain_listen, number))

    @property
    def me(self) -> Member:
        """This node among the members."""
        return next(member for member in self.members if member.node_id == self.node_id)

    @property
    def hosts(self) -> list[str]:
        """The hosts by which clients reach this node, as host or, where the port counts in an Origin, host:port."""
        scheme, _, host = self.me.url.partition("://")
        port = "" if _PORT.search(host) else f":{_DEFAULT_PORTS[scheme]}"
        return [self.http, host + port, *self.allowed_hosts]

    @property
    def controllers(self) -> list[str]:
        """The founders of the controller group, over distinct zones first; none for a node that joins."""
        if self.join:
            return []
        return placement.controllers([(member.node_id, member.zone) for member in self.members], CONTROLLERS_MAX)

    def tls(self) -> Tls | None:
        """The TLS of the traffic between nodes; None: plaintext. Raises TlsFault."""
        section = self.raft.tls
        return section.load(self.cluster_id, self.node_id) if section is not None else None


FILES = ("ca", "certificate", "key", "client_ca", "revoked")
"""The settings of sections for TLS that name files."""


def parse_address(text: str) -> Address:
    """host:port as a pair. Raises ValueError."""
    host, separator, port = text.rpartition(":")
    if not separator or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"{text!r} is not host:port")
    return host.strip("[]"), int(port)


def is_address(text: str) -> bool:
    """Whether a text is host:port."""
    try:
        parse_address(text)
    except ValueError:
        return False
    return True


def is_base_url(text: str) -> bool:
    """Whether a text is http://host:port, or the same with https or without a port."""
    try:
        parts = urlsplit(text)
        return _URL.match(text) is not None and bool(parts.hostname) and parts.port != 0
    except ValueError:  # no such port, or an IPv6 address without its brackets
        return False


def is_name(text: str) -> bool:
    """Whether a node or a cluster can be called this."""
    return _NAME.match(text) is not None


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def load(path: Path) -> NodeConfig:
    """The configuration in a TOML file. Relative paths count from the file. Raises ConfigError with every fault."""
    return made(read(path), path.parent)


def read(path: Path) -> dict[str, Any]:
    """The tables of a TOML file, unchecked. Raises ConfigError for a file that cannot be read, or is no TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError([f"{path}: {error.strerror}"]) from error
    except ValueError as error:
        raise ConfigError([f"{path}: {error}"]) from error


def made(raw: Mapping[str, Any], directory: Path) -> NodeConfig:
    """The configuration in these tables; relative paths count from ``directory``. Raises ConfigError with every
    fault.
    """
    config = check(raw)
    config = msgspec.structs.replace(config, data_dir=str(directory / config.data_dir))
    if config.tiered is not None and "://" not in config.tiered.place:
        tiered = msgspec.structs.replace(config.tiered, place=str(directory / config.tiered.place))
        config = msgspec.structs.replace(config, tiered=tiered)
    return _with_files(config, directory)


def _with_files(config: NodeConfig, directory: Path) -> NodeConfig:
    """The configuration with the paths of its files from ``directory`` on. Raises ConfigError for useless files."""
    faults: list[str] = []
    raft = msgspec.structs.replace(config.raft, tls=_found("raft.tls", config.raft.tls, directory, faults))
    http_tls = _found("http_tls", config.http_tls, directory, faults)
    issuers = _with_keys(config.issuers, directory, faults)
    config = msgspec.structs.replace(config, raft=raft, http_tls=http_tls, issuers=issuers)
    for node in () if faults else config.nodes():
        try:
            node.tls()
        except TlsFault as fault:
            faults.append(f"raft.tls.{fault}")
    try:
        if http_tls is not None and not faults:
            HttpTls(http_tls)
    except TlsFault as fault:
        faults.append(f"http_tls.{fault}")
    if faults:
        raise ConfigError(faults)
    return config


def _with_keys(issuers: list[Issuer], directory: Path, faults: list[str]) -> list[Issuer]:
    found = []
    for each in issuers:
        path = None if each.keys is None else str(directory / each.keys)
        found.append(msgspec.structs.replace(each, keys=path))
        try:
            if path is not None:
                KeyFile(Issuers(issuers), each.name, path)
        except KeysFault as fault:
            faults.append(f"issuers.{each.name}.keys: {fault}")
    return found


def _found(where: str, section: _Section | None, directory: Path, faults: list[str]) -> _Section | None:
    if section is None:
        return None
    named = {name: getattr(section, name, None) for name in FILES}
    paths = {name: str(directory / path) for name, path in named.items() if path is not None}
    faults += [f"{where}.{name}: {fault}" for name, path in paths.items() if (fault := _unreadable(path)) is not None]
    return msgspec.structs.replace(section, **paths)


def _unreadable(path: str) -> str | None:
    try:
        with Path(path).open("rb"):
            return None
    except (OSError, ValueError) as error:
        return f"cannot read the file: {error}"


def check(raw: Mapping[str, Any]) -> NodeConfig:
    """A configuration from parsed TOML. Raises ConfigError with every fault."""
    faults: list[str] = []
    values = _fields(raw, NodeConfig, "", faults, nested={"members", "raft", "limits", "ledger", "http_tls", "tiered"})
    raft = _raft(raw.get("raft", {}), faults)
    limits = _section(raw.get("limits", {}), LimitsSection, "limits", faults)
    ledger = _section(raw.get("ledger", {}), LedgerSection, "ledger", faults)
    faults.extend(_ledger_faults(ledger))
    http_tls = _http_tls(raw["http_tls"], faults) if "http_tls" in raw else None
    tiered = _tiered(raw["tiered"], faults) if "tiered" in raw else None
    listed = _members(raw.get("members"), faults)
    members = _nodes_of(listed, values, faults)
    _check_timing(raft, limits, faults)
    is_exposed = raft is not None and not raft.plaintext and "tls" not in raw.get("raft", {})
    _check_addresses(values, is_exposed, faults)
    faults.extend(_exposure_faults(raw, values))
    if listed and values.get("node_id") not in (None, *(member.node_id for member in listed)):
        faults.append(f"members: this node ({values['node_id']}) is not among them")
    _check_members(members, faults)
    faults.extend(token_faults(values.get("tokens", [])))
    faults.extend(principal_faults(values.get("principals", [])))
    faults.extend(issuer_faults(values.get("issuers", [])))
    faults.extend(f"join: {url!r} is not http://host:port" for url in values.get("join", []) if not is_base_url(url))
    faults.extend(_host_faults(values.get("allowed_hosts", [])))
    if faults:
        raise ConfigError(faults)
    return NodeConfig(
        **values,
        members=members,
        raft=cast(RaftSection, raft),
        limits=cast(LimitsSection, limits),
        ledger=cast(LedgerSection, ledger),
        http_tls=http_tls,
        tiered=tiered,
    )


def _tiered(raw: object, faults: list[str]) -> TieredSection | None:
    section = _section(raw, TieredSection, "tiered", faults)
    if section is not None:
        faults.extend(
            f"tiered.{fault}" for fault in tiered_faults(section.place, section.cache_bytes, section.timeout_ms)
        )
    return section


def _http_tls(raw: object, faults: list[str]) -> HttpTlsSection | None:
    section = _section(raw, HttpTlsSection, "http_tls", faults)
    if section is None:
        return None
    if section.plain_listen is not None and not is_address(section.plain_listen):
        faults.append(f"http_tls.plain_listen: {section.plain_listen!r} is not host:port")
    if section.client_ca is None and section.client_certificates == "required":
        faults.append('http_tls.client_ca: missing, and client_certificates is "required"')
    return section


def _fields(
    raw: Mapping[str, Any],
    kind: type[msgspec.Struct],
    where: str,
    faults: list[str],
    nested: set[str] = frozenset(),  # type: ignore[assignment]
) -> dict[str, Any]:
    known = {field.name: field for field in msgspec.structs.fields(kind)}
    faults.extend(f"{where}{name}: unknown setting" for name in raw if name not in known)
    values: dict[str, Any] = {}
    for name, field in known.items():
        if name in nested:
            continue
        if name not in raw:
            if field.required:
                faults.append(f"{where}{name}: missing")
            continue
        try:
            values[name] = msgspec.convert(raw[name], field.type)
        except msgspec.ValidationError as error:
            faults.append(f"{where}{name}: {error}")
    return values


def _section(raw: object, kind: type[_Section], where: str, faults: list[str]) -> _Section | None:
    if not isinstance(raw, Mapping):
        faults.append(f"{where}: not a table")
        return None
    before = len(faults)
    values = _fields(raw, kind, f"{where}.", faults)
    return kind(**values) if len(faults) == before else None


def _raft(raw: object, faults: list[str]) -> RaftSection | None:
    if not isinstance(raw, Mapping) or "tls" not in raw:
        return _section(raw, RaftSection, "raft", faults)
    tls = _section(raw["tls"], TlsSection, "raft.tls", faults)
    rest = {name: value for name, value in raw.items() if name != "tls"}
    raft = _section(rest, RaftSection, "raft", faults)
    if raft is None:
        return None
    if raft.plaintext:
        faults.append("raft.plaintext: not together with [raft.tls]; node traffic is either encrypted or plaintext")
    return msgspec.structs.replace(raft, tls=tls)


def _members(raw: object, faults: list[str]) -> list[Member]:
    if not isinstance(raw, list) or not raw:
        faults.append("members: one [[members]] table for each node of the cluster is needed")
        return []
    found = [_section(entry, Member, f"members[{position}]", faults) for position, entry in enumerate(raw)]
    return [member for member in found if member is not None]


def _check_timing(raft: RaftSection | None, limits: LimitsSection | None, faults: list[str]) -> None:
    if raft is not None:
        if not 10 <= raft.heartbeat_ms <= raft.election_timeout_min_ms // 3:
            third = raft.election_timeout_min_ms // 3
            bounds = f"10 to a third of raft.election_timeout_min_ms ({third})"
            faults.append(f"raft.heartbeat_ms: must be {bounds}, not {raft.heartbeat_ms}")
        if not raft.election_timeout_min_ms < raft.election_timeout_max_ms <= 60_000:
            bounds = f"above raft.election_timeout_min_ms ({raft.election_timeout_min_ms}), and 60000 at most"
            faults.append(f"raft.election_timeout_max_ms: must be {bounds}, not {raft.election_timeout_max_ms}")
    if limits is not None:
        sizes = [(name, getattr(limits, name), *bounds) for name, bounds in LIMITS.items()]
        faults.extend(
            f"limits.{name}: must be {low} to {high}, not {size}"
            for name, size, low, high in sizes
            if not low <= size <= high
        )
        if limits.disk_hard_free_bytes > limits.disk_soft_free_bytes > 0:
            hard, soft = limits.disk_hard_free_bytes, limits.disk_soft_free_bytes
            faults.append(
                f"limits.disk_hard_free_bytes: must be limits.disk_soft_free_bytes ({soft}) at most, not {hard}"
            )


def _ledger_faults(ledger: LedgerSection | None) -> Iterator[str]:
    for name, (low, high) in LEDGER_LIMITS.items() if ledger is not None else ():
        given = getattr(ledger, name)
        if given != -1 and not low <= given <= high:
            yield f"ledger.{name}: must be {low} to {high}, or -1, not {given}"


def _check_addresses(values: dict[str, Any], is_exposed: bool, faults: list[str]) -> None:
    for name in ("node_id", "cluster_id"):
        if name in values and not is_name(values[name]):
            faults.append(f"{name}: {values[name]!r} is not 1 to 249 of letters, digits, '.', '_', '-'")
    for name in ("http", "raft_listen"):
        try:
            host, _ = parse_address(values.get(name, "localhost:1"))
        except ValueError as error:
            faults.append(f"{name}: {error}")
            continue
        if name == "raft_listen" and is_exposed and not is_loopback(host):
            faults.append(
                f"raft_listen: {host} is reachable from other machines and node traffic is not encrypted; "
                "add [raft.tls], listen on loopback, or set raft.plaintext = true on a network you trust"
            )


def _exposure_faults(raw: Mapping[str, Any], values: Mapping[str, Any]) -> Iterator[str]:
    """Faults that open the HTTP interface to other machines by accident, and settings that contradict each other."""
    tls = raw.get("http_tls")
    is_closed = bool(raw.get("tokens") or raw.get("principals"))
    if values.get("http_plaintext") and tls is not None:
        yield "http_plaintext: not together with [http_tls]; http is either encrypted or plaintext"
    if values.get("open_to_all") and is_closed:
        yield "open_to_all: not together with [[principals]] or [[tokens]]; without these, everyone may do everything"
    listeners = {"http": values.get("http"), "http_tls.plain_listen": _of(tls, "plain_listen")}
    reachable = {name: host for name, address in listeners.items() if (host := _reachable(address)) is not None}
    if "http" in reachable and tls is None and not values.get("http_plaintext"):
        yield (
            f"http: {reachable['http']} is reachable from other machines and HTTP is not encrypted; add [http_tls], "
            "listen on loopback, or set http_plaintext = true on a network you trust"
        )
    if _of(tls, "client_certificates") == "required":
        reachable.pop("http", None)
    for name, host in () if is_closed or values.get("open_to_all") else reachable.items():
        yield (
            f"{name}: {host} is reachable from other machines and every client may do everything; add [[principals]], "
            "listen on loopback, or set open_to_all = true on a network you trust"
        )


def _of(section: object, name: str) -> object:
    return section.get(name) if isinstance(section, Mapping) else None


def _reachable(address: object) -> str | None:
    """The host of an address that other machines reach; None: they do not, or it is no address."""
    if not isinstance(address, str) or not is_address(address):
        return None
    host, _ = parse_address(address)
    return None if is_loopback(host) else host


def _host_faults(hosts: list[str]) -> Iterator[str]:
    if len(hosts) > HOSTS_MAX:
        yield f"allowed_hosts: at most {HOSTS_MAX}"
    for host in hosts:
        if not _HOST.match(host):
            yield f"allowed_hosts: {host!r} is not host or host:port"


def _nodes_of(listed: list[Member], values: dict[str, Any], faults: list[str]) -> list[Member]:
    """The nodes of all members. Sets ``processes`` in ``values`` if this machine's member says how many it runs."""
    common = values.get("processes")
    if wrong := list(machines.count_faults("processes", common)):
        common = None
    found = []
    for member in listed:
        each = list(machines.member_faults(member, common))
        found += [member] if each else member.nodes(common)
        wrong += each
        if member.node_id == values.get("node_id") and member.processes is not None:
            if common not in (None, member.processes):
                wrong.append(f"processes: {common}, but members has {member.processes} for this machine")
            values["processes"] = member.processes
    if not wrong and values.get("processes") is not None and "http" in values and "raft_listen" in values:
        wrong += machines.listening_faults(values["http"], values["raft_listen"], values["processes"])
    if len(found) > len(listed):
        wrong += machines.sharing_faults(found)
    else:
        rafts = {member.node_id: member.raft for member in found}
        wrong += [f"members: {raft} is raft of two nodes" for raft in _twice([*rafts.values()])]
    faults.extend(wrong)
    return found


def _twice(texts: list[str]) -> list[str]:
    return sorted({text for text in texts if texts.count(text) > 1})


def _check_members(members: list[Member], faults: list[str]) -> None:
    ids = [member.node_id for member in members]
    if len(members) > NODES_MAX:
        faults.append(f"members: at most {NODES_MAX}")
    for name in _twice(ids):
        faults.append(f"members: {name} is there twice")
    for member in members:
        if not is_name(member.node_id):
            faults.append(f"members: node_id {member.node_id!r} is not 1 to 249 of letters, digits, '.', '_', '-'")
        if not is_base_url(member.url):
            faults.append(f"members: url {member.url!r} of {member.node_id} is not http://host:port")
        try:
            parse_address(member.raft)
        except ValueError as error:
            faults.append(f"members: raft of {member.node_id}: {error}")
