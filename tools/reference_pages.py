"""Writes docs/errors.md, docs/settings.md and docs/metrics.md from the code and the contract: ``python
tools/reference_pages.py``.

A test compares pages and code, and demands advice for each code. Meanings, ranges and defaults are the contract's;
advice is what the refusals themselves say.
"""

import inspect
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec

from stockade import errors
from stockade.cli.canary.figures import SERIES as CANARY
from stockade.cli.service.environment import settings
from stockade.cluster.config import (
    FILES,
    HOSTS_MAX,
    LEDGER_LIMITS,
    LIMITS,
    LedgerSection,
    LimitsSection,
    RaftSection,
    TieredSection,
)
from stockade.cluster.machines import PROCESSES_MAX
from stockade.cluster.settings import Setting
from stockade.cluster.tiered.settings import CACHE_BYTES, TIMEOUT_MS
from stockade.http_api.request.series import SECTIONS
from stockade.partition.api.cluster import BalanceSettings
from stockade.partition.errors import BY_CODE, StockadeError
from stockade.partition.refusal_texts import BY_REASON, NO_TEXT, text_of, writer_of

ROOT = Path(__file__).resolve().parents[1]
ERRORS, SETTINGS, METRICS = (ROOT / "docs" / f"{name}.md" for name in ("errors", "settings", "metrics"))

UNSAID = {
    "INVALID_REQUEST": "Mend the request; `detail` names what is wrong.",
    "INVALID_RECORD": "Mend the record at `index`; the others of the batch were not stored either.",
    "METHOD_NOT_ALLOWED": "Use a method of the header `Allow`.",
    "UNKNOWN_REFUSAL": "The node is newer than this client, or the address is no node's: `detail` tells. Then upgrade, "
    "or mend the address.",
    "OTHER_EVENT_LOOP": "Make one object for each event loop, or use stockade.sync from any thread.",
    "USED_AFTER_FORK": "Connect after the fork: make new objects in each process.",
}
"""By code, what a program does next, for refusals whose own text (partition/refusal_texts.py) does not say it."""

ERRORS_HEAD = """# Errors, and what to do next

<!-- Made by tools/reference_pages.py: change that, and run it again. -->

Over HTTP a refusal is `application/problem+json`, in Python an exception of `stockade.errors`,
on the command line a sentence. All say the `code`, what happened (`detail`), what to do next (`hint`), and the fields
that [openapi.yaml](openapi.yaml) lists. Three questions decide what a program does, and each refusal answers them
itself:

- **May it have had an effect?** `no_side_effects` true: nothing was changed. False: look before you do it again. *The
  outcome is unknown* stands below where it is always false; with another code it is false only where the refusal
  ended something that the request had begun.
- **May the same request succeed later?** `retriable`. The Python client repeats by itself what is safe to repeat, for
  `delivery_timeout_ms`; what it raises, it has given up.
- **Is my picture of the cluster out of date?** `metadata_stale`: ask again for topics and leaders.

A code that you do not know, with 403 or 409, is final. [What can go wrong](failures.md) begins from the failure
instead of the code.
"""

SETTINGS_HEAD = """# Settings

<!-- Made by tools/reference_pages.py: change that, and run it again. -->

A name contains its unit: `_ms` milliseconds, `_s` seconds, `_bytes` bytes. Every setting has a bound; a value beyond
it is refused when it is set.

- **A client**: [`ClientConfig`](python.md#settings), every setting with default, bounds and meaning.
- **A node**: the file of `stockade serve --config`, [line by line](deploying.md); its numbers are below.
- **A topic**: below. `stockade topics create NAME --config require_fence=true`, `stockade topics alter`, or
  `create_topic(config={…})`.
- **Spark**: options of [a read](spark.md#options-of-a-read) and [a write](spark-sink.md).
- **Environment of `stockade serve`**: each setting of a node's file has [a variable](#variables-of-a-node).
- **Environment of clients**: STOCKADE_URL (base URLs of nodes, separated by commas) and STOCKADE_TOKEN are obeyed by
  the Python client and the command line,
  [the other variables](cli.md#what-all-commands-have-in-common) by the command line.
"""


VARIABLES_HEAD = """## Variables of a node

`stockade serve` takes each setting from the command line, or else from its variable, or else from the file of
`--config` (or STOCKADE_CONFIG), or else it has its default. A variable says one setting, and leaves the others of the
same table as they are; a list in a variable replaces that of the file. An empty variable counts as none.

- **Name**: STOCKADE_, and the setting in capitals, with two underscores behind the name of a table.
- **From a file**: with _FILE behind it (STOCKADE_PRINCIPALS_FILE), the variable names a file of at most 4 MiB that
  holds the value: for secrets. Not for settings that are paths themselves, and not beside the variable without _FILE.
- **Paths** count from the file of `--config`, without one from the working directory.
- **Faults** are all said at once, each with its variable. A name that begins with STOCKADE_ and that no setting, no
  client and no command has is one; those in which Kubernetes tells of a service called stockade are left alone.

`--log-format` and `--log-level` are STOCKADE_LOG_FORMAT and STOCKADE_LOG_LEVEL.
"""

METRICS_HEAD = """# Metrics

<!-- Made by tools/reference_pages.py from http_api/request/series.py: change those, and run it again. -->

Each node serves its own series at `/metrics`, in the Prometheus text format. A name contains its unit where it has one;
*total* counts since the start of the node, so use `rate` or `increase`. Every series has its `# HELP` line from the
start; a labelled one has samples once there is something to tell. Labels have few values: a cluster of three nodes with
a thousand partitions has as many series as one with ten. [Alerts](how-to/alerts.md) says what to watch.

`/metrics` needs no token. Only what names consumer groups and topics is left out for a caller without the right
`read cluster`: give Prometheus the token of a principal that has it (`authorization: {credentials_file: …}` in its
scrape configuration). Without that right, what a node tells may be a second old: it looks once a second,
however many ask.

Numbers are read when Prometheus asks. The way of an append pays for the histograms of its sync and its apply alone,
some hundred nanoseconds each.
"""
PROCESS = (
    ("`process_cpu_seconds_total`", "counter", "", "seconds", "Processor time of the node's process."),
    ("`process_resident_memory_bytes`", "gauge", "", "bytes", "Memory that the process uses."),
    ("`process_virtual_memory_bytes`", "gauge", "", "bytes", "Memory that the process has mapped."),
    ("`process_start_time_seconds`", "gauge", "", "seconds since 1970", "When the process started."),
    ("`process_open_fds`", "gauge", "", "descriptors", "Open files and connections."),
    ("`process_max_fds`", "gauge", "", "descriptors", "The most that the system allows."),
)
"""The series that the Prometheus client has for every process: name, kind, labels, unit, meaning."""


def metrics_page() -> str:
    """The text of docs/metrics.md."""
    columns = ["series", "kind", "labels", "unit", "meaning"]
    parts = [METRICS_HEAD]
    for heading, section in SECTIONS.items():
        rows = [
            (f"`{each.exposed}`", each.kind, ", ".join(f"`{label}`" for label in each.labels), each.unit, each.meaning)
            for each in section
        ]
        parts += [f"## {heading}\n", _rows(columns, rows), ""]
    canary = [
        (f"`{each.exposed}`", each.kind, ", ".join(f"`{x}`" for x in each.labels), each.unit, each.meaning)
        for each in CANARY
    ]
    parts += [
        "## The canary\n",
        "Served by [`stockade canary`](how-to/canary.md), on a port of its own.\n",
        _rows(columns, canary),
        "",
    ]
    return "\n".join([*parts, "## The process\n", _rows(columns, PROCESS), ""])


def contract() -> dict[str, Any]:
    """The schemas of the contract."""
    text = (ROOT / "http_api" / "assets" / "openapi.json").read_text(encoding="utf-8")
    schemas: dict[str, Any] = json.loads(text)["components"]["schemas"]
    return schemas


def client_only() -> list[type[StockadeError]]:
    """The refusals that only the Python client raises; no node answers them."""
    classes = [getattr(errors, name) for name in errors.__all__ if name != "StockadeError"]
    return [cls for cls in classes if issubclass(cls, StockadeError) and cls.code not in BY_CODE]


def errors_page() -> str:
    """The text of docs/errors.md."""
    answered = sorted(BY_CODE.values(), key=lambda cls: (cls.http_status, cls.code))
    meanings = dict(_meanings(contract()))
    parts = [ERRORS_HEAD, "## What nodes answer\n"]
    parts += [_section(cls, meanings[cls.code]) for cls in answered if cls.code in meanings]
    parts += ["## What only the Python client raises\n"]
    parts += [_section(cls, inspect.cleandoc(cls.__doc__ or "").replace("``", "`")) for cls in client_only()]
    parts += ["`InvalidConfig`, a `ValueError`, lists all faults of a configuration in `faults`.\n"]
    return "\n".join(parts)


def _meanings(schemas: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, schema in schemas.items():
        if name.startswith("Problem") and name != "Problem":
            yield schema["examples"][0]["code"], schema["description"]


def _section(cls: type[StockadeError], meaning: str) -> str:
    effect = "no effect" if cls.no_side_effects else "the outcome is unknown"
    facts = [str(cls.http_status)] * bool(cls.http_status) + [effect, "retriable" if cls.retriable else "not retriable"]
    if cls is errors.UnknownRefusal:
        facts = ["effect, and whether it is retriable, as each answer says"]
    return f"### {cls.code}\n\n*{', '.join(facts)}.* {meaning}\n\n{advice(cls.code)}\n"


def advice(code: str) -> str:
    """What to do next after a refusal, for each of its reasons. Raises KeyError for a code without advice."""
    reasons = {reason: text for (about, reason), text in BY_REASON.items() if about == code}
    if not reasons:
        return f"**Next:** {text_of(code, None).everywhere() or UNSAID[code]}"
    lines = [f"- `{reason}`: {_shown(text.because)}. **Next:** {text.everywhere()}" for reason, text in reasons.items()]
    without = f"**Next:** {text_of(code, None).everywhere()} " if text_of(code, None) != NO_TEXT else ""
    field = "what" if code == "NOT_FOUND" else "reason"
    return f"{without}By `{field}`:\n\n" + "\n".join(lines)


def _shown(because: str) -> str:
    """A template with its fields by name: ``{holder[mode]}`` is `holder.mode`."""
    named = because.replace(
        "{writer}", writer_of({"producer_name": "{holder[producer_name]}", "client_id": "{holder[client_id]}"})
    )
    return re.sub(r"\{(\w+)(?:\[(\w+)\])?\}", lambda field: f"`{'.'.join(filter(None, field.groups()))}`", named)


def settings_page() -> str:
    """The text of docs/settings.md."""
    fields = contract()["TopicConfig"]["properties"]
    topic = [
        (
            f"`{name}`",
            _json(field["default"]) if "default" in field else "see there",
            _range(field),
            field["description"],
        )
        for name, field in fields.items()
    ]
    parts = [SETTINGS_HEAD, "## Of a topic\n", _rows(["setting", "default", "range", "meaning"], topic), ""]
    balance = contract()["BalanceSettings"]["properties"]
    defaults = msgspec.structs.asdict(BalanceSettings())
    cluster = [
        (
            f"`{name}`",
            _json(defaults[name]),
            ", ".join(field["enum"]) if "enum" in field else _range(field),
            field["description"],
        )
        for name, field in balance.items()
    ]
    parts += ["## Of the cluster's balance\n"]
    parts += [
        "`stockade cluster balance --set NAME=VALUE`, in force on all nodes at once: [balance](deploying.md#balance).\n"
    ]
    parts += [_rows(["setting", "default", "range", "meaning"], cluster), ""]
    parts += ["## Of a node\n"]
    parts += [_rows(["setting", "default", "range"], [*_node()]), ""]
    parts += [VARIABLES_HEAD, _rows(["variable", "setting", "value"], [*_variables()]), ""]
    return "\n".join(parts)


def _variables() -> Iterator[tuple[str, str, str]]:
    for variable, setting in settings().items():
        yield f"`{variable}`", f"`{setting.name}`", _form(setting)


def _form(setting: Setting) -> str:
    if setting.type in (int, bool):
        return "whole number" if setting.type is int else "true, false"
    if setting.type == list[str]:
        return "texts, separated by commas"
    if get_origin(setting.type) is list:
        return f"JSON array, or `[[{setting.name}]]` in TOML"
    if get_origin(setting.type) is Literal:
        return ", ".join(get_args(setting.type))
    return "path" if setting.path[-1] in (*FILES, "data_dir") else "text"


def _node() -> Iterator[tuple[str, str, str]]:
    yield "`processes`", "a node by itself", f"1 to {PROCESSES_MAX}"
    limits = LimitsSection()
    for name, (least, greatest) in LIMITS.items():
        yield f"`limits.{name}`", _json(getattr(limits, name)), f"{least:,} to {greatest:,}"
    ledger = LedgerSection()
    for name, (least, greatest) in LEDGER_LIMITS.items():
        yield f"`ledger.{name}`", _json(getattr(ledger, name)), f"{least:,} to {greatest:,}, or -1: no bound"
    for name in ("http_plaintext", "open_to_all"):
        yield f"`{name}`", "false", "true, false; [what other machines reach](deploying.md#what-other-machines-reach)"
    yield "`allowed_hosts`", "[]", f"at most {HOSTS_MAX} of host or host:port; [browsers](deploying.md#browsers)"
    raft = RaftSection()
    yield "`raft.election_timeout_min_ms`", _json(raft.election_timeout_min_ms), "at least 3 x `heartbeat_ms`"
    yield "`raft.election_timeout_max_ms`", _json(raft.election_timeout_max_ms), "above the least, at most 60,000"
    yield "`raft.heartbeat_ms`", _json(raft.heartbeat_ms), "10 to a third of `election_timeout_min_ms`"
    tiered = TieredSection("")
    yield "`tiered.place`", "none", "a folder or a URL; [tiered storage](how-to/tiered.md)"
    yield "`tiered.cache_bytes`", _json(tiered.cache_bytes), "{:,} to {:,}".format(*CACHE_BYTES)
    yield "`tiered.timeout_ms`", _json(tiered.timeout_ms), "{:,} to {:,}".format(*TIMEOUT_MS)


def _json(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else json.dumps(value)


def _range(field: Mapping[str, Any]) -> str:
    if "minimum" not in field:
        return f"`{field['pattern']}`" if "pattern" in field else "true, false"
    least, greatest = field["minimum"], field["maximum"]
    return f"from {least:,} on" if greatest >= 2**63 - 1 else f"{least:,} to {greatest:,}"


def _rows(headings: Sequence[str], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [tuple(headings), ("---",) * len(headings), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


if __name__ == "__main__":
    ERRORS.write_text(errors_page(), encoding="utf-8")
    SETTINGS.write_text(settings_page(), encoding="utf-8")
    METRICS.write_text(metrics_page(), encoding="utf-8")
