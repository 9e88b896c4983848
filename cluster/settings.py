"""The settings of a node by the names that people write, and those that a node runs with."""

import types
from collections.abc import Iterator
from typing import Any, NamedTuple, Union, get_args, get_origin

import msgspec

from ..partition.api.cluster import NodeSetting
from .config import NodeConfig

ALIKE = (
    *("cluster_id", "issuers", "principals", "tokens", "open_to_all", "tiered.place"),
    *("ledger.retention_ms", "ledger.retention_bytes", "limits.topic_retention_ms"),
    *("raft.heartbeat_ms", "raft.election_timeout_min_ms", "raft.election_timeout_max_ms"),
)
"""Settings that have to be the same on every node: which of them counts depends on who leads, or is asked."""


class Setting(NamedTuple):
    """A setting of a node's configuration: the tables in which it is and its name, the type of its value, and its
    default: None if it has to be given, or means something else where it is absent.
    """

    path: tuple[str, ...]
    type: Any
    default: Any

    @property
    def name(self) -> str:
        """The name as people write it, for example limits.wal_bytes_max."""
        return ".".join(self.path)


def settings_of(table: type[msgspec.Struct] = NodeConfig, within: tuple[str, ...] = ()) -> Iterator[Setting]:
    """The settings of a table, and of the tables in it."""
    for field in msgspec.structs.fields(table):
        kind, path = _without_none(field.type), (*within, field.name)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            yield from settings_of(kind, path)
        else:
            yield Setting(path, kind, _default(field))


def in_force(config: NodeConfig) -> list[NodeSetting]:
    """The settings that a node of this configuration runs with, ascending by name. Of tables that may occur several
    times (members, principals, tokens, issuers) only the names are told: no hash of a token leaves a node.
    """
    found = (NodeSetting(each.name, _value(config, each), _shown(each.default)) for each in settings_of())
    return sorted(found, key=lambda each: each.name)


def _without_none(kind: Any) -> Any:
    if get_origin(kind) in (Union, types.UnionType):
        (kind,) = (each for each in get_args(kind) if each is not type(None))
    return kind


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return None if field.default is msgspec.NODEFAULT else field.default


def _value(config: NodeConfig, setting: Setting) -> Any:
    value: Any = config
    for name in setting.path:
        value = getattr(value, name, None)  # None of a table that is absent
    return _shown(value)


def _shown(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [str(getattr(each, "node_id", None) or getattr(each, "name", each)) for each in value]
    return value
