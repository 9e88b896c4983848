"""Commands whose caller has closed the standard streams, or whose standard output takes no bytes."""

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from stockade.cli.ui.streams import write_out

from ...client.fake_cluster import FakeCluster

FULL = Path("/dev/full")


def ran(redirection: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command, redirected by a shell, with its exit code and what it said on standard error."""
    line = [sys.executable, "-m", "stockade", *arguments]
    shell = ["sh", "-c", f'exec "$0" "$@" {redirection}', *line]
    return subprocess.run(shell, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("redirection", [">&-", "<&- >&-", "<&- >&- 2>&-"])
def test_a_command_whose_standard_streams_are_closed_does_its_work_and_ends_well(
    cluster: FakeCluster, redirection: str
) -> None:
    done = ran(redirection, "topics", "create", "quiet", "--url", cluster.nodes[0])
    assert (done.returncode, done.stderr) == (0, "")
    assert "quiet" in cluster.topics


@pytest.mark.skipif(not FULL.is_char_device(), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [("principals", "token"), ("--help",), ("certs", "--help")])
def test_a_full_standard_output_is_one_line_and_an_exit_code_that_does_not_say_done(arguments: tuple[str, ...]) -> None:
    done = ran(f"> {FULL}", *arguments)
    assert (done.returncode, done.stderr) == (
        3,
        "Error: standard output cannot be written: No space left on device\n",
    )


@pytest.mark.skipif(not FULL.is_char_device(), reason="needs /dev/full")
def test_a_change_that_was_made_and_could_not_be_printed_is_no_refusal(cluster: FakeCluster) -> None:
    done = ran(f"> {FULL}", "topics", "create", "made", "--url", cluster.nodes[0])
    assert (done.returncode, len(done.stderr.splitlines())) == (3, 1)
    assert "made" in cluster.topics


TURNS = 100


def test_the_event_loop_turns_while_a_pipe_takes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """`consume --group | ./slow` did not renew its session meanwhile, lost it, and the same records came again."""
    turned, taken, content = threading.Event(), list[bytes](), os.urandom(300_000)
    reading, writing = os.pipe()

    def read() -> None:
        turned.wait(10)
        with os.fdopen(reading, "rb") as file:
            taken.append(file.read())

    async def work() -> None:
        task = asyncio.create_task(write_out(content))
        for _ in range(TURNS):
            await asyncio.sleep(0)
        assert not task.done()
        turned.set()
        await task

    reader = threading.Thread(target=read)
    reader.start()
    with os.fdopen(writing, "w", encoding="utf-8") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        asyncio.run(work())
        monkeypatch.undo()
    reader.join()
    assert taken == [content]
