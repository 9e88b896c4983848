"""An exported ledger, verified by the script of docs/how-to/ledger.md alone: what was tampered with is noticed. And the
file that it is written to.
"""

import asyncio
import os
import re
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import cast

import msgspec
import pyarrow as pa
import pytest

from stockade.cli.audit import export
from stockade.cli.audit.export import SCHEMA, Chain, Fault
from stockade.client.api.client import Client
from stockade.cluster.controller.ledger import Ledger
from stockade.partition.api.ledger import LedgerEntry, encode_entry, entry_hash

PAGE = Path(__file__).parents[4] / "docs" / "how-to" / "ledger.md"
Rows = list[tuple[int, bytes]]


@pytest.fixture
def rows() -> Rows:
    ledger = Ledger()
    ledger.begin()
    for number in range(9):
        ledger.at(number, 1_000 + number, number)
        ledger.record("topic.create", topic=f"t{number}", after={"partitions": number})
    first, entries = ledger.oldest(1 << 30, 1 << 30)
    return list(enumerate(entries, first))


@pytest.fixture
def script(tmp_path: Path) -> Path:
    found = re.search(r"```python\n(# verify_ledger\.py\n.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    (tmp_path / "verify_ledger.py").write_text(found[1])
    return tmp_path / "verify_ledger.py"


def written(rows: Rows, path: Path) -> str:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, SCHEMA) as file:
        columns = [pa.array([number for number, _ in rows], pa.int64()), pa.array([entry for _, entry in rows])]
        file.write_batch(pa.record_batch(columns, schema=SCHEMA))
    return str(path)


def verified(script: Path, rows: Rows, *heads: str) -> subprocess.CompletedProcess[str]:
    """The script, in a Python that cannot import the product."""
    path = written(rows, script.with_name("ledger.arrow"))
    return subprocess.run(
        [sys.executable, "-I", str(script), path, *heads], capture_output=True, text=True, check=False
    )


def head_of(rows: Rows) -> str:
    chain = Chain()
    for number, entry in rows:
        chain.follow(number, entry)
    return f"{chain.last}:{chain.head}"


def test_a_ledger_that_is_as_it_was_written_is_verified_and_both_say_the_same_head(script: Path, rows: Rows) -> None:
    done = verified(script, rows)
    said = f"10 entries from 1 on, head {head_of(rows)}\nnothing is proved: no head was given\n"
    assert (done.returncode, done.stdout) == (0, said), done.stderr
    kept = rows[3:]
    assert verified(script, kept).returncode == 0, "what is before the first one has passed its retention"
    assert verified(script, rows, head_of(rows), head_of(rows[:4])).returncode == 0


def changed(rows: Rows) -> Rows:
    return [(number, entry.replace(b'"topic":"t3"', b'"topic":"t4"')) for number, entry in rows]


def dropped(rows: Rows) -> Rows:
    return rows[:4] + rows[5:]


def dropped_and_numbered_anew(rows: Rows) -> Rows:
    later = [
        (number - 1, entry.replace(b'"number":%d,' % number, b'"number":%d,' % (number - 1)))
        for number, entry in rows[5:]
    ]
    return rows[:4] + later


def reordered(rows: Rows) -> Rows:
    numbers = [number for number, _ in rows]
    entries = [entry for _, entry in rows]
    entries[4], entries[5] = entries[5], entries[4]
    return list(zip(numbers, entries, strict=True))


def doubled(rows: Rows) -> Rows:
    return rows[:5] + rows[4:]


def with_a_changed_number(rows: Rows) -> Rows:
    return [(number + (number == 5), entry) for number, entry in rows]


def without_the_first(rows: Rows) -> Rows:
    return [(number - 1, entry) for number, entry in rows[1:]]


TAMPERED = [
    changed,
    dropped,
    dropped_and_numbered_anew,
    reordered,
    doubled,
    with_a_changed_number,
    without_the_first,
]


@pytest.mark.parametrize("tamper", TAMPERED, ids=lambda tamper: tamper.__name__)
def test_a_ledger_that_was_tampered_with_is_not(script: Path, rows: Rows, tamper: Callable[[Rows], Rows]) -> None:
    done = verified(script, tamper(rows))
    assert done.returncode == 1, done.stdout
    assert "entry" in done.stderr
    with pytest.raises(Fault):
        head_of(tamper(rows))


def test_an_end_that_was_cut_off_or_changed_is_noticed_by_a_head_that_was_noted(script: Path, rows: Rows) -> None:
    noted = head_of(rows)
    cut = rows[:-2]
    assert verified(script, cut).returncode == 0, "a chain does not tell by itself that it went on"
    ended = verified(script, cut, noted)
    assert (ended.returncode, ended.stderr) == (1, "there is no entry 10 with the hash that was noted\n")
    last = [*rows[:-1], (10, rows[-1][1].replace(b"t8", b"t9"))]
    assert verified(script, last).returncode == 0
    assert verified(script, last, noted).returncode == 1


def made_anew(rows: Rows, changed_number: int) -> Rows:
    """An entry is another, and all after it have the hashes for that."""
    made: Rows = []
    for number, entry in rows:
        told = msgspec.json.decode(entry, type=LedgerEntry)
        topic = "another" if number == changed_number else told.topic
        previous = entry_hash(made[-1][1]) if made else told.previous
        made.append((number, encode_entry(msgspec.structs.replace(told, topic=topic, previous=previous))))
    return made


def test_only_entries_up_to_a_noted_head_are_proved_by_command_and_script(script: Path, rows: Rows) -> None:
    """The chain has no key: it holds, too, where a copy was made anew from an entry on."""
    noted, forged = [head_of(rows[:count]) for count in (3, 5)], made_anew(rows, 5)
    assert forged[:4] == rows[:4] and forged[4:] != rows[4:]
    done = verified(script, forged, noted[0])
    assert (done.returncode, done.stdout.splitlines()[1]) == (0, "proved up to entry 3, and nothing above")
    assert verified(script, rows, *noted).stdout.splitlines()[1] == "proved up to entry 5, and nothing above"
    assert verified(script, forged, noted[1]).returncode == 1


def test_an_empty_export_says_so(script: Path) -> None:
    assert verified(script, []).returncode == 1


class Kept:
    """A client of a ledger with these rows."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows


@pytest.fixture
def client(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> Client:
    async def stored(client: Kept, first: int) -> AsyncIterator[Rows]:
        yield client.rows

    monkeypatch.setattr(export, "stored", stored)
    return cast(Client, Kept(rows))


def exported(client: Client, path: Path) -> None:
    asyncio.run(export.export(client, path, "c"))


def read(path: Path) -> Rows:
    table = pa.ipc.open_file(path.read_bytes()).read_all()
    return list(zip(table["number"].to_pylist(), table["entry"].to_pylist(), strict=True))


def test_only_its_owner_reads_an_export_and_a_link_to_it_stays(client: Client, rows: Rows, tmp_path: Path) -> None:
    kept, link = tmp_path / "kept" / "ledger.arrow", tmp_path / "latest"
    kept.parent.mkdir()
    link.symlink_to(kept)
    for _ in range(2):
        exported(client, link)
        assert (read(link), stat.S_IMODE(kept.stat().st_mode)) == (rows, 0o600)
        assert link.is_symlink()
    assert {path.name for path in tmp_path.rglob("*")} == {"kept", "ledger.arrow", "latest"}


def test_two_exports_to_one_file_do_not_meet_and_a_failed_one_leaves_the_file_before(
    rows: Rows, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "ledger.arrow"

    others = [cast(Client, Kept(rows))]

    async def stored(client: Kept, first: int) -> AsyncIterator[Rows]:
        yield client.rows[:5]
        if others:
            await export.export(others.pop(), path, "c")
        yield client.rows[5:]

    monkeypatch.setattr(export, "stored", stored)
    exported(cast(Client, Kept(rows)), path)
    assert read(path) == rows
    with pytest.raises(Fault):
        exported(cast(Client, Kept(dropped(rows))), path)
    assert read(path) == rows
    assert list(tmp_path.iterdir()) == [path]


def test_a_pipe_is_written_to_and_not_replaced(client: Client, rows: Rows, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE) as reader:
        exported(client, pipe)
        written_out, _ = reader.communicate()
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    (tmp_path / "copy").write_bytes(written_out)
    assert read(tmp_path / "copy") == rows
    assert {path.name for path in tmp_path.iterdir()} == {"pipe", "copy"}
