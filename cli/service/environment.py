"""A node's configuration from STOCKADE_* variables, alone or over a TOML file.

A variable's name is STOCKADE_ and the setting's name in capitals, with two underscores behind the name of a table:
``limits.wal_bytes_max`` is STOCKADE_LIMITS__WAL_BYTES_MAX. With _FILE behind it, the variable names a file that holds
the value. Setting by setting, a variable overrides the TOML file; an empty variable counts as absent.
"""

import json
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, get_origin

import click

from ...cluster.config import FILES, ConfigError, NodeConfig, check, made, read
from ...cluster.settings import Setting, settings_of

PREFIX = "STOCKADE_"
BETWEEN = "__"
FILE = "_FILE"
VALUE_BYTES_MAX = 4 * 1024 * 1024
"""Largest file that a variable may name."""
OTHERS = frozenset(
    PREFIX + name
    for name in (
        *("URL", "TIMEOUT", "TOKEN", "TOKEN_FILE", "CA", "CERTIFICATE", "KEY", "CONFIG", "LOG_FORMAT", "LOG_LEVEL"),
        *("GRANT", "EPOCH", "EPOCHS", "SESSION", "TOPIC"),
        *("GROUP", "RESOURCE", "GENERATION", "FENCE_EPOCH", "OWNED", "COMPLETE"),
    )
)
"""Variables with the prefix that are no settings of a node: those of clients and of command-line options, and those
that commands set for the COMMAND that they run.
"""
_LINK = re.compile(r"STOCKADE_(\w+_)?(SERVICE_(HOST|PORT)(_\w+)?|PORT(_\d+_(TCP|UDP)(_\w+)?)?)\Z")
"""Variables that Kubernetes sets in each pod about a service with the name stockade, or stockade-nodes."""
_JSON = re.compile(r"\s*\[(?!\[)")


@cache
def settings() -> dict[str, Setting]:
    """Every setting that a variable can give, by the variable's name."""
    return {variable_of(setting): setting for setting in settings_of()}


def variable_of(setting: Setting) -> str:
    """The name of a setting's environment variable."""
    return PREFIX + BETWEEN.join(setting.path).upper()


def is_setting(variable: str) -> bool:
    """Whether this environment variable gives a setting, as its value or, with _FILE, in a file."""
    return variable in settings() or variable.removesuffix(FILE) in settings()


def without_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for a process that takes all settings from its file."""
    return {name: value for name, value in environ.items() if not is_setting(name)}


class Given(NamedTuple):
    """The configuration that the environment gives: ``values``, in tables as a TOML file has them; ``variables``, by
    the name of the setting that each gives; ``faults``, by the name of the setting (or of a variable that gives none).
    """

    values: dict[str, Any]
    variables: dict[str, str]
    faults: dict[str, str]

    def explained(self, faults: Iterable[str]) -> Iterator[str]:
        """These faults of the whole configuration, each with the variable that gave the setting. Faults of settings in
        ``self.faults`` are left out: they are reported already.
        """
        for fault in faults:
            name = re.split(r"[:\[]", fault, maxsplit=1)[0]
            if name not in self.faults:
                variable = self.variables.get(name)
                yield fault if variable is None else f"{fault} (from {variable})"


def given(environ: Mapping[str, str]) -> Given:
    """The settings that these variables give; reads the files that they name."""
    found = Given({}, {}, {})
    for variable in sorted(name for name in environ if name.startswith(PREFIX) and environ[name]):
        setting = settings().get(variable) or settings().get(variable.removesuffix(FILE))
        if setting is None:
            if variable not in OTHERS and not _LINK.match(variable):
                found.faults[variable] = f"{variable}: no setting of a node has this name"
        elif variable != variable_of(setting) and setting.path[-1] in FILES:
            # The content of the file, perhaps a private key, would be taken for a path, and shown in a message.
            found.faults[setting.name] = f"{variable}: say {variable_of(setting)}, which names the file itself"
        elif variable != variable_of(setting) and environ.get(variable_of(setting)):
            found.faults[setting.name] = f"{variable}: {variable_of(setting)} says the same setting"
        else:
            try:
                _put(found.values, setting, _value(setting, _text(environ, setting, variable)))
                found.variables[setting.name] = variable
            except (OSError, ValueError, RecursionError) as error:
                found.faults[setting.name] = f"{variable}: {error}"
    return found


def _text(environ: Mapping[str, str], setting: Setting, variable: str) -> str:
    if variable == variable_of(setting):
        return environ[variable]
    with Path(environ[variable]).open("rb") as file:
        content = file.read(VALUE_BYTES_MAX + 1)
    if len(content) > VALUE_BYTES_MAX:
        raise ValueError(f"the file has more than {VALUE_BYTES_MAX} bytes")
    return content.decode().strip()


def _value(setting: Setting, text: str) -> Any:
    """The value of a setting in a text. Raises ValueError. Later ``cluster.config`` checks bounds and forms."""
    if setting.type is bool:
        if text not in ("true", "false"):
            raise ValueError(f"{text!r} is neither true nor false")
        return text == "true"
    if setting.type is int:
        if not re.fullmatch(r"-?[0-9][0-9_]*", text):
            raise ValueError(f"{text!r} is not a whole number")
        return int(text)
    if setting.type == list[str]:
        return [part.strip() for part in text.split(",") if part.strip()]
    return _tables(setting.name, text) if get_origin(setting.type) is list else text


def _tables(name: str, text: str) -> Any:
    """A list of tables: JSON, or the [[tables]] as they stand in a TOML file."""
    if _JSON.match(text):
        return json.loads(text)
    found = tomllib.loads(text)
    if list(found) != [name]:
        raise ValueError(f"neither a JSON array, nor [[{name}]] in TOML and nothing else")
    return found[name]


def _put(values: dict[str, Any], setting: Setting, value: Any) -> None:
    *tables, name = setting.path
    for table in tables:
        values = values.setdefault(table, {})
    values[name] = value


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Both configurations together; where both have a setting, that of ``above`` counts. Lists are replaced, not
    joined.
    """
    together = {**below, **above}
    for name in below.keys() & above.keys():
        if isinstance(below[name], Mapping) and isinstance(above[name], Mapping):
            together[name] = merged(below[name], above[name])
    return together


def load(
    path: Path | None,
    processes: int | None = None,
    environ: Mapping[str, str] = os.environ,
    *,
    with_files: bool = True,
) -> NodeConfig:
    """The configuration of a TOML file, of the environment, or of both; ``processes`` overrides both. Relative paths
    are relative to the file's folder, or without a file to the working directory. ``with_files`` False: paths stay as
    they are, and what is wrong with the files of certificates and keys does not matter.

    Raises ConfigError with every fault.
    """
    said = given(environ)
    raw = merged({} if path is None else read(path), said.values)
    raw = raw if processes is None else raw | {"processes": processes}
    try:
        config = made(raw, Path() if path is None else path.parent) if with_files else check(raw)
    except ConfigError as error:
        raise ConfigError([*said.faults.values(), *said.explained(error.faults)]) from error
    if said.faults:
        raise ConfigError(list(said.faults.values()))
    return config


def configured(config: Path | None, processes: int | None = None) -> tuple[NodeConfig, str]:
    """The configuration of a file and the environment, and the name of its source for messages. Raises ClickException
    with every fault.
    """
    if config is None and not any(given(os.environ)):
        raise click.UsageError("Where is the configuration? In --config FILE, or in variables such as STOCKADE_NODE_ID")
    source = "the environment" if config is None else str(config)
    try:
        return load(config, processes), source
    except ConfigError as error:
        raise unusable(source, error.faults) from error


def unusable(source: str, faults: Sequence[str]) -> click.ClickException:
    """The error that ends a command: the configuration of this source has these faults."""
    return click.ClickException(f"{source} cannot be used:\n{listed(faults)}")


def listed(faults: Sequence[str]) -> str:
    """The faults as a list for a message, one in a line."""
    return "\n".join(f"  - {fault}" for fault in faults)
