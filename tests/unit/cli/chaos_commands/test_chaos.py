"""What `stockade chaos` shows without breaking anything."""

import ast
import json
import logging
import subprocess
import sys
from collections.abc import Collection, Sequence
from itertools import chain, count, repeat
from pathlib import Path, PurePosixPath
from typing import Self

import pytest
from click.testing import CliRunner
from sources import text

from stockade.chaos.checkers.verdicts import CHECKERS, Verdict
from stockade.chaos.faults import clock
from stockade.chaos.faults.catalogue import CATALOGUE
from stockade.chaos.harness.campaign import Options, Outcome
from stockade.chaos.harness.judging import Judgement
from stockade.chaos.harness.results import HISTORY, LOGS, Summary
from stockade.chaos.harness.round import RoundOver
from stockade.chaos.history.tables import LOGS_SCHEMA, TableWriter
from stockade.chaos.workloads.catalogue import WORKLOADS
from stockade.cli.chaos_commands import needs, run, soak
from stockade.cli.main import main
from stockade.cli.ui.output import without_warnings_of_the_client


def test_faults_are_told_to_people_and_to_programs() -> None:
    shown = CliRunner().invoke(main, ["chaos", "faults"])
    told = json.loads(CliRunner().invoke(main, ["chaos", "faults", "--output", "json"]).stdout)
    assert [each["fault"] for each in told["faults"]] == list(CATALOGUE)
    assert all(each["fault"] in shown.stdout and each["needs"] for each in told["faults"])
    assert "toxiproxy" in told["setups"]


def test_a_command_that_stops_nodes_mutes_the_client_while_it_runs_only() -> None:
    log = logging.getLogger("stockade.client")
    before = log.level
    assert CliRunner().invoke(main, ["chaos", "faults"]).exit_code == 0
    assert log.level == before
    with without_warnings_of_the_client():
        assert not log.isEnabledFor(logging.WARNING)


def test_a_history_that_cannot_be_judged_says_which_and_ends_with_2(tmp_path: Path) -> None:
    history = tmp_path / "history.jsonl"
    history.write_text("no history\n", encoding="utf-8")
    done = CliRunner().invoke(main, ["chaos", "check", str(history), "--output", "json"])
    assert done.exit_code == 2
    assert f"cannot check {history}" in done.stderr


def test_a_history_without_an_operation_proves_nothing_and_ends_with_2(tmp_path: Path) -> None:
    """As where a program of one's own wrote its events elsewhere, or each without its topic."""
    options = Options(["append"], [], 1, 5.0)
    (tmp_path / HISTORY).touch()
    with TableWriter(tmp_path / LOGS, LOGS_SCHEMA):
        Summary.of(options, ["processes"], 3, Outcome(Judgement(), [], [], 1.0), {}).write(tmp_path)
    done = CliRunner().invoke(main, ["chaos", "check", str(tmp_path / HISTORY)])
    assert done.exit_code == 2
    assert "no operation on a partition is in it" in done.stderr


class Lacking:
    """A machine that lacks what the setups named need."""

    def __init__(self, **reasons: str) -> None:
        self._reasons = reasons

    def why_not(self, setups: Sequence[str]) -> str | None:
        return next((self._reasons[setup] for setup in setups if setup in self._reasons), None)


BARE = Lacking(namespaces="missing: iptables", clocks="missing: libfaketime", toxiproxy="no toxiproxy-server")


@pytest.mark.parametrize(
    ("fault", "options", "lacks"),
    [
        ("kill-leader", "--setup processes", None),
        ("corrupt-wal", "--setup processes", None),
        ("transfer-leader", "--setup processes", None),
        ("move-replica", "--nodes 4", None),
        ("remove-node", "--nodes 4", None),
        ("partition", "--setup namespaces", "missing: iptables"),
        ("toxic-latency", "--setup toxiproxy", "no toxiproxy-server"),
        ("clock-rate", "--setup clocks", "missing: libfaketime"),
        ("power", "--setup disks", None),
    ],
)
def test_a_fault_names_the_options_it_needs_and_what_this_machine_lacks_for_it(
    monkeypatch: pytest.MonkeyPatch, fault: str, options: str, lacks: str | None
) -> None:
    monkeypatch.setattr(needs, "why_not", BARE.why_not)
    assert needs.needs(CATALOGUE[fault]) == (options, lacks)


def test_only_faults_of_the_clock_ask_for_libfaketime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "why_not", BARE.why_not)
    asking = {fault for fault in CATALOGUE.values() if "libfaketime" in str(needs.needs(fault).lacks)}
    assert asking == set(clock.CLOCK_FAULTS)


def test_a_fault_whose_cgroup_is_missing_names_the_setup_and_the_cgroup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "why_not", Lacking().why_not)
    monkeypatch.setattr("stockade.chaos.system.cgroups.why_not", lambda controller: f"no cgroup for {controller}")
    assert needs.needs(CATALOGUE["disk-slow"]) == ("--setup disks", "no cgroup for blkio")
    assert needs.needs(CATALOGUE["memory-oom"]) == ("--setup processes", "no cgroup for memory")


@pytest.mark.parametrize(
    ("faults", "said"),
    [
        ("partition", "partition needs --setup namespaces, which this machine does not allow: missing: iptables"),
        ("kill-one,move-replica", "move-replica needs --nodes 4"),
        ("clock-rate", "clock-rate needs --setup clocks, which this machine does not allow: missing: libfaketime"),
        ("power", "power needs --setup disks"),
    ],
)
def test_a_named_fault_that_cannot_strike_is_refused_before_a_cluster_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, faults: str, said: str
) -> None:
    monkeypatch.setattr(needs, "why_not", BARE.why_not)
    done = CliRunner().invoke(main, ["chaos", "run", "--faults", faults, "--results", str(tmp_path / "made")])
    assert done.exit_code == 2
    assert done.stderr.splitlines()[-1] == f"Error: Invalid value for --faults: {said}"
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("violations", "failures", "code"), [(0, [], 0), (1, [], 1), (0, ["n1 did not start"], 2), (1, ["n1"], 1)]
)
@pytest.mark.parametrize("words", [["run"], ["replay", "7"]])
def test_a_run_ends_with_1_for_a_violation_and_with_2_for_a_failure_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str], violations: int, failures: list[str], code: int
) -> None:
    """Scripts and the soak read nothing else."""

    def ran(console: object, options: Options, *_: object, **__: object) -> tuple[Outcome, Options]:
        judged = Judgement([Verdict("order", "in order", violations, [])])
        return Outcome(judged, [RoundOver(7, 1, 0.5, failures)], [], 1.0), options

    monkeypatch.setattr(run, "_run", ran)
    given = ["chaos", *words, "--workload", "append", "--faults", "none", "--results", str(tmp_path)]
    done = CliRunner().invoke(main, given)
    assert done.exit_code == code, done.output
    assert all(f"round 7: {failure}" in done.stdout for failure in failures)


@pytest.mark.parametrize(
    ("faults", "struck", "code"), [("kill-one", [], 2), ("kill-one", ["kill-one"], 0), ("all", [], 0)]
)
def test_a_run_whose_named_fault_never_found_a_target_says_so_and_is_no_success(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, faults: str, struck: list[str], code: int
) -> None:
    """In the one round, and with ``struck`` it did in another one."""

    def ran(console: object, options: Options, *_: object, **__: object) -> tuple[Outcome, Options]:
        rounds = [RoundOver(7, 1, 0.5, [], (), (), {"kill-one": "no node runs"}), RoundOver(8, 1, 0.5, [], (), struck)]
        return Outcome(Judgement(), rounds, [], 1.0), options

    monkeypatch.setattr(run, "_run", ran)
    given = ["chaos", "run", "--workload", "append", "--faults", faults, "--results", str(tmp_path)]
    done = CliRunner().invoke(main, given)
    assert done.exit_code == code, done.output
    assert ("kill-one never struck: no node runs" in done.stdout) == (not struck)


@pytest.mark.parametrize("words", [["run", "--minutes", "0.2"], ["replay", "7"]])
@pytest.mark.parametrize("faults", ["kill-leader", "all"])
@pytest.mark.parametrize(("apart", "is_refused"), [("12", True), ("3", False)])
def test_a_run_whose_rounds_have_no_time_for_a_strike_is_refused_before_a_cluster_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str], faults: str, apart: str, is_refused: bool
) -> None:
    """It passed, and said nothing of its own: no fault had struck."""

    def ran(console: object, options: Options, *_: object, **__: object) -> tuple[Outcome, Options]:
        return Outcome(Judgement(), [RoundOver(7, 1, 0.5, [])], [], 1.0), options

    monkeypatch.setattr(run, "_run", ran)
    given = ["--workload", "append", "--faults", faults, "--round", "12", "--apart", apart]
    done = CliRunner().invoke(main, ["chaos", *words, *given, "--results", str(tmp_path / "made")])
    assert done.exit_code == 2 * is_refused, done.output
    assert ("no round of 12 s has time for a strike" in done.output) == is_refused
    assert (tmp_path / "made").exists() != is_refused


def test_a_soak_one_of_whose_runs_was_killed_is_no_success(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As by the kernel, for want of memory: the code of a process that a signal ended is below that of a success."""
    codes, now_s = chain([0, -9], repeat(0)), count(0, 30)

    class Killed(Process):
        def wait(self) -> int:
            return next(codes)

    monkeypatch.setattr(soak, "why_not", lambda setups: "not here")
    monkeypatch.setattr("subprocess.Popen", Killed)
    monkeypatch.setattr("time.monotonic", lambda: next(now_s))
    ended = CliRunner().invoke(main, ["chaos", "soak", "--minutes", "10", "--results", str(tmp_path)])
    assert ended.exit_code == 2


def test_a_soak_runs_every_workload(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Those that `all` leaves out have runs of their own, on every machine."""
    ran: list[Sequence[str]] = []
    now_s = count(0, 30)

    class Nothing(Process):
        def __init__(self, command: Sequence[str], **_: object) -> None:
            ran.append(command)

    monkeypatch.setattr(soak, "why_not", lambda setups: "not here")
    monkeypatch.setattr("subprocess.Popen", Nothing)
    monkeypatch.setattr("time.monotonic", lambda: next(now_s))
    CliRunner().invoke(main, ["chaos", "soak", "--minutes", "10", "--results", str(tmp_path)])
    named = {name for command in ran for name in workloads_of(command)}
    assert named == set(WORKLOADS)


class Process:
    """A process that ends with 2, or when it is told to."""

    def __init__(self, *_: object, **__: object) -> None:
        self.is_told = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.wait()

    def wait(self) -> int:
        return 2

    def terminate(self) -> None:
        self.is_told = True


def test_a_soak_that_is_interrupted_waits_until_its_run_has_let_go_of_everything(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`subprocess.run` kills what has not ended after a quarter of a second: the disks of its nodes stayed."""
    waited: list[bool] = []

    class Interrupted(Process):
        def wait(self) -> int:
            waited.append(self.is_told)
            if not self.is_told:
                raise KeyboardInterrupt
            return 130

    monkeypatch.setattr(soak, "why_not", lambda setups: "not here")
    monkeypatch.setattr("subprocess.Popen", Interrupted)
    assert CliRunner().invoke(main, ["chaos", "soak", "--results", str(tmp_path)]).exit_code == 130
    assert waited == [False, True]


HOLDING = """
import signal
import click
from stockade.cli.chaos_commands.chaos import chaos

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored

@chaos.command()
def hold():
    try:
        print("there", flush=True)
        signal.pause()
    finally:
        print("let go", flush=True)

chaos(["hold"])
"""


def test_sigterm_lets_go_of_everything_as_ctrl_c_does() -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDING], stdout=subprocess.PIPE, text=True) as holding:
        assert holding.stdout is not None
        assert holding.stdout.readline() == "there\n"
        holding.terminate()
        assert holding.stdout.read() == "let go\n"


def workloads_of(command: Sequence[str]) -> Collection[str]:
    given = command[command.index("--workload") + 1]
    return run.chosen(WORKLOADS, given, "--workload")


def test_the_documents_count_the_checkers_and_the_workloads_as_the_code_does() -> None:
    """The audit has three less than chaos, and one of its own."""
    words = {10: "ten", 17: "seventeen", 19: "nineteen"}
    assert f"in {words[len(WORKLOADS)]} workloads" in prose("docs/chaos.md")
    assert f"with {words[len(CHECKERS)]} checkers" in prose("docs/chaos.md")
    assert f"runs {words[len(audited())]} checkers on them" in prose("docs/spark.md")
    assert set(CHECKERS) - audited() == {"byte-exact", "order", "slot-history"}
    assert audited() - set(CHECKERS) == {"phantom"}


def prose(path: str) -> str:
    return " ".join(text(PurePosixPath(path)).split())


def audited() -> set[str]:
    """The checkers of `stockade pipeline audit`, read from its source: to import it takes Spark."""
    tree = ast.parse(text(PurePosixPath("spark/pipelines/audit/audit.py")))
    assigned = {ast.unparse(each.targets[0]): each.value for each in tree.body if isinstance(each, ast.Assign)}
    return set(ast.literal_eval(assigned["CLAIMS"]))
