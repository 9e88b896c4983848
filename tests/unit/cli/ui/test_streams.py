"""Commands whose caller has closed the standard streams, or whose standard output takes no bytes."""

import subprocess
import sys
from pathlib import Path

import pytest

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
def test_what_was_done_and_could_not_be_printed_is_no_refusal(cluster: FakeCluster) -> None:
    done = ran(f"> {FULL}", "topics", "create", "made", "--url", cluster.nodes[0])
    assert (done.returncode, len(done.stderr.splitlines())) == (3, 1)
    assert "made" in cluster.topics
