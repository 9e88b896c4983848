"""Every command of an operator, against a real node."""

import asyncio
import json
import shlex
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec import structs

from stockade.cli.main import main
from stockade.client.api.client import Client
from stockade.partition.api.records import RefusedWrites
from stockade.partition.api.topics import Topic
from stockade.partition.commands import Stamp
from stockade.partition.errors import OutOfOrderSequence, PermissionDenied
from stockade.partition.records.batch import message_from_columns

from ..client.fake_cluster import FakeCluster
from .conftest import Run
from .operating import Operator


def test_a_topic_is_altered_and_sealed(at: Operator) -> None:
    created = at.tells("topics", "create", "alter", "--config", "retention_ms=5000", "--config", "writer_group=none")
    assert (created["config"]["retention_ms"], created["config"]["writer_group"]) == (5000, None)
    assert at.says("topics", "alter", "alter", "--partitions", "3", "--config", "retention_ms=-1") == (
        "alter: 3 partitions with 1 replica each, retention_ms=-1\n"
    )
    assert at.tells("topics", "describe", "alter")["config"]["retention_ms"] == -1
    assert at.says("topics", "describe", "alter").splitlines()[1] == "settings: retention_ms=-1"
    at.says("topics", "alter", "alter", "--config", "quota_bytes=7", "--config", "max_producers=9")
    assert at.says("topics", "describe", "alter").splitlines()[1] == (
        "settings: max_producers=9, retention_ms=-1, quota_bytes=7"
    )
    assert at.says("topics", "seal", "alter") == "alter: sealed\n"
    assert at.says("topics", "describe", "alter").splitlines()[0].endswith(", sealed")
    done = at.call("produce", "alter", stdin="late\n")
    assert (done.exit_code, "(TOPIC_SEALED)" in done.stderr) == (1, True)
    assert ["alter", "3"] in [line[:2] for line in at.lines("topics", "list")]


def test_a_setting_that_is_none_is_wrong_usage_and_says_which_there_are(at: Operator) -> None:
    for setting in ("retention", "colour=red", "retention_ms=long", "strict_sequence=paper"):
        done = at.call("topics", "create", "never", "--config", setting)
        assert done.exit_code == 2, setting
    assert "retention_ms" in at.call("topics", "create", "never", "--config", "colour=red").stderr
    assert at.call("topics", "alter", "never").exit_code == 2
    wrong = ("retention_ms=long", "colour=red", "quota_bytes=1", "quota_bytes=2")
    all_said = at.call("topics", "create", "never", *(word for each in wrong for word in ("--config", each))).stderr
    for fault in ("retention_ms: 'long' is not", "'colour=red' is not", "quota_bytes is given twice"):
        assert fault in " ".join(all_said.split())


@pytest.mark.parametrize("asked", ["2001-09-09T03:46:40+02:00", "1000000000000"])
def test_the_offset_of_a_time_is_shown_under_that_time_as_people_write_it(at: Operator, asked: str) -> None:
    """The heading was 1000000000000."""
    at.says("topics", "create", "timed")
    headings, _ = at.says("topics", "offsets", "timed", "--at", asked).splitlines()
    assert headings.split("  ")[-1] == "2001-09-09T01:46:40Z"


def test_offsets_tail_and_trim_tell_where_a_partition_stands(at: Operator) -> None:
    at.says("topics", "create", "log", "--require-fence")
    at.says("produce", "log", "--exclusive", stdin="a\nb\nc\n")
    assert at.lines("topics", "offsets", "log", "--at", "earliest")[1] == ["0", "0", "3", "0"]
    assert at.tells("topics", "offsets", "log", "--at", "2001-01-01T00:00:00Z")["partitions"][0]["offset"] == 0
    assert at.lines("topics", "offsets", "log", "--at", "2990-01-01")[1][-1] == "-1"
    last = at.lines("topics", "tail", "log", "--records", "1")
    assert (last[0], last[2][0], last[2][-1]) == (
        ["log/0:", "log", "start", "0,", "log", "end", "3,", "epoch", "1"],
        "2",
        "c",
    )
    row = at.tells("topics", "tail", "log", "--records", "1")["records"][0]
    assert (row["offset"], row["key"], row["value"], row["headers"]) == (2, None, "c", [])
    assert at.refused("topics", "trim", "log", "--partition", "0", "--before", "2")[1]["code"] == (
        "FENCING_TOKEN_REQUIRED"
    )
    trimmed = at.tells("topics", "trim", "log", "--partition", "0", "--before", "2", "--exclusive")
    assert (trimmed["log_start"], trimmed["log_end"]) == (2, 3)
    assert (
        at.says("topics", "trim", "log", "--partition", "0", "--before", "end", "--exclusive")
        == "log/0: log start 3, log end 3\n"
    )


def test_lists_of_grants_name_present_and_past_holders(at: Operator, session: str) -> None:
    at.says("topics", "create", "held", "--partitions", "4")
    said = at.says("grants", "acquire", "held", "--session", session, "--partition", "0", "--partition", "1")
    grant, _, epoch, *_ = said.split()
    *shown, since, left, unit, last = at.lines("grants", "list", "held")[1]
    assert [*shown, last] == ["held", "0-1", "nightly", "stockade", "Exclusive", epoch, grant]
    assert (since.startswith("20"), 0 < float(left) <= 120, unit) == (True, True, "s")
    assert "stockade of nightly, Exclusive, epoch" in at.says("topics", "describe", "held")
    [holding] = at.tells("grants", "list")["grants"]
    assert (holding["client_id"], holding["partitions"]) == ("nightly", [0, 1])
    [nightly] = at.tells("sessions", "describe", "nightly")
    assert (nightly["grants"][0]["grant"], nightly["grants"][0]["partitions"]) == (grant, 2)
    assert grant in at.says("sessions", "describe", "nightly")
    assert at.refused("grants", "acquire", "held", "--session", session, "--mode", "fencing")[0] in (1, 5)
    assert at.says("grants", "release", grant, "--session", session) == "released\n"
    past = at.lines("grants", "describe", "held", "--partition", "0")[1]
    assert (past[:4], past[-1]) == (["0", epoch, "nightly", "stockade"], "0")
    assert at.tells("grants", "list", "held")["grants"] == []


@pytest.fixture
def behead(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Lets all partitions of a topic but the first seem to have no leader, from its call on."""
    topic = Client.topic

    async def beheaded(client: Client, name: str, **how: Any) -> Topic:
        found = await topic(client, name, **how)
        found.partitions[1:] = [structs.replace(each, leader=None, leader_node=None) for each in found.partitions[1:]]
        return found

    return lambda: monkeypatch.setattr(Client, "topic", beheaded)


def test_grants_are_listed_where_another_partition_has_no_leader(
    at: Operator, session: str, behead: Callable[[], None]
) -> None:
    """The list waited 30 s, and showed none at all, just when StockadePendingFences says to look at it."""
    at.says("topics", "create", "halved", "--partitions", "3")
    at.says("grants", "acquire", "halved", "--session", session, "--partition", "0")
    behead()
    told = at.tells("grants", "list", "halved")
    assert [holding["partitions"] for holding in told["grants"]] == [[0]]
    assert told["unknown"] == ["halved/1", "halved/2"]
    assert at.call("grants", "list", "halved").stderr == "without halved/1, halved/2: no leader is known\n"


def test_partitions_with_a_leader_are_shown_where_others_have_none(
    at: Operator, session: str, behead: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`grants describe` waited 30 s for each partition without a leader, `groups describe` for all of them, and neither
    showed the others then.
    """
    at.says("topics", "create", "parted", "--partitions", "3")
    at.says("grants", "acquire", "parted", "--session", session, "--partition", "0")
    at.says("groups", "reset", "reading", "parted", "--to", "earliest", "--yes")
    behead()
    for call in ("fences", "position"):
        monkeypatch.setattr(Client, call, only_of_the_first(getattr(Client, call)))
    for words in (("grants", "describe", "parted"), ("groups", "describe", "reading", "--topic", "parted")):
        said, told = at.call(*words), at.call(*words, "--output", "json")
        assert (said.exit_code, told.exit_code) == (1, 1)
        assert said.stderr == "Error: without parted/1, parted/2: no leader is known\n"
        assert json.loads(told.stderr)["code"] == "LEADER_NOT_AVAILABLE"
        assert len(said.stdout.splitlines()) == 2
        shown = json.loads(told.stdout)
        assert [each["partition"] for each in (shown if words[0] == "grants" else shown["positions"])] == [0]
    [nothing] = at.call("grants", "describe", "parted", "--partition", "2").stdout.splitlines()
    assert nothing.startswith("PARTITION")


def only_of_the_first(call: Callable[..., Any]) -> Callable[..., Any]:
    """A method of the client that fails where it is asked of another partition than 0."""

    async def ask(client: Client, *names: Any, **more: Any) -> Any:
        assert names[-1] == 0
        return await call(client, *names, **more)

    return ask


def test_a_fence_on_purpose_names_the_grants_that_it_ended(at: Operator, session: str) -> None:
    at.says("topics", "create", "drill")
    grant = at.tells("grants", "acquire", "drill", "--session", session)
    fenced = at.tells("fence", "drill", "--reason", "drill")
    assert fenced["partitions"] == [{"partition": 0, "epoch": grant["epoch"] + 1, "grants": [grant["grant"]]}]
    assert "fenced: drill" in at.says("grants", "describe", "drill")
    assert at.lines("fence", "drill", "--partition", "0")[1] == ["0", str(grant["epoch"] + 2), "-"]


def test_sessions_are_opened_renewed_listed_and_ended(at: Operator) -> None:
    opened = at.tells("sessions", "open", "renewed", "--ttl", "60")
    assert at.says("sessions", "renew", opened["session"]).startswith("renewed: ")
    listed = at.tells("sessions", "list", "--prefix", "renew")
    assert [each["client_id"] for each in listed["sessions"]] == ["renewed"]
    assert opened["session"] not in at.says("sessions", "list")
    at.says("sessions", "end", opened["session"])
    code, problem = at.refused("sessions", "renew", opened["session"])
    assert (code, problem["code"], problem["exit_code"], problem["no_side_effects"]) == (5, "UNKNOWN_SESSION", 5, True)
    assert problem["hint"]
    assert at.call("sessions", "describe", "renewed").exit_code == 1


def test_a_list_of_groups_says_how_many_it_leaves_out(
    at: Operator, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for group in ("many-1", "many-2", "many-3"):
        at.says("claim", group, "it", "--session", session)
    monkeypatch.setattr("stockade.cli.ownership.groups.ROWS_MAX", 1)
    assert at.says("groups", "list", "--prefix", "many-").splitlines()[2:] == ["and 2 more; --prefix chooses"]
    assert at.tells("groups", "list", "--prefix", "many-")["total"] == 3


def test_changes_are_told_as_json_too(at: Operator, session: str) -> None:
    at.says("topics", "create", "told")
    stored = at.tells("produce", "told", str(Path(__file__)))
    assert (stored["topic"], stored["absent_records"]) == ("told", 0)
    lines = len(Path(__file__).read_bytes().splitlines())
    assert stored["partitions"] == [{"partition": 0, "base_offset": 0, "last_offset": lines - 1}]
    grant = at.tells("grants", "acquire", "told", "--session", session)["grant"]
    assert at.tells("grants", "release", grant, "--session", session) == {"grant": grant, "released": True}
    at.says("claim", "tellers", "it", "--session", session)
    given_up = at.tells("disown", "tellers", "it", "--session", session)
    assert given_up == {"group": "tellers", "resource": "it", "owned": False}
    assert at.tells("topics", "delete", "told", "--yes") == {"topic": "told", "deleted": True}
    opened = at.tells("sessions", "open", "told")["session"]
    assert at.tells("sessions", "end", opened) == {"session": opened, "ended": True}


def test_ctrl_c_before_a_command_began_has_the_exit_code_of_ctrl_c(
    at: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("stockade.cli.main.LazyGroup.get_command", interrupt)
    assert at.call("topics", "list").exit_code == 130


def test_groups_show_owners_positions_and_lag_and_can_be_reset(at: Operator, session: str) -> None:
    at.says("topics", "create", "read", "--partitions", "2")
    at.says("produce", "read", "--partition", "1", stdin="a\nb\nc\n")
    owned = at.tells("claim", "billing", "read/1", "--session", session)
    assert (owned["granted"], owned["fence_epoch"]) == (True, 1)
    assert at.lines("groups", "list", "--prefix", "bill")[1] == ["billing", "1", "1"]
    described = at.tells("groups", "describe", "billing")
    assert [(each["partition"], each["owner"], each["lag"]) for each in described["positions"]] == [
        (0, None, 0),
        (1, "nightly", 3),
    ]
    refused = at.call("groups", "reset", "billing", "read", "--to", "latest")
    assert (refused.exit_code, "read/1 by nightly" in refused.stderr) == (1, True)
    assert at.lines("groups", "reset", "billing", "read", "--partition", "1", "--to-offset", "2", "--force")[1] == (
        ["read", "1", "2"]
    )
    assert at.call("disown", "billing", "read/1", "--session", session).exit_code == 0
    at.says("groups", "reset", "billing", "read", "--to", "latest")
    assert at.lines("groups", "describe", "billing")[-1] == ["read", "1", "-", "3", "3", "0"]
    assert at.call("groups", "reset", "billing", "read").exit_code == 2
    assert "; --to-offset takes an offset" in at.call("groups", "reset", "billing", "read", "--to", "2").stderr
    at.says("groups", "reset", "nightly", "read", "--to", "latest")
    for group in ("billing", "nightly"):  # the first has owned a partition
        assert at.lines("groups", "forget", group, "read")[1:] == [["read", "0", "-"], ["read", "1", "-"]]
    assert at.lines("groups", "describe", "billing")[-1] == ["read", "1", "-", "-", "3", "3"]
    assert at.tells("claim", "billing", "read/1", "--session", session)["granted"]
    assert at.call("groups", "forget", "billing", "read").exit_code == 1
    assert "owns nothing" in at.says("groups", "describe", "nobody")


def test_a_group_whose_next_records_were_dropped_is_shown_with_the_way_on(at: Operator, session: str) -> None:
    at.says("topics", "create", "overtaken", "--partitions", "2")
    for partition in ("0", "1"):
        at.says("produce", "overtaken", "--partition", partition, stdin="a\nb\nc\nd\n")
    at.says("groups", "reset", "late", "overtaken", "--to-offset", "1")
    at.says("topics", "trim", "overtaken", "--partition", "0", "--before", "1")
    assert at.lines("groups", "describe", "late", "--topic", "overtaken")[-1] == ["overtaken", "1", "-", "1", "4", "3"]
    at.says("topics", "trim", "overtaken", "--partition", "1", "--before", "3")
    said = at.says("groups", "describe", "late", "--topic", "overtaken").splitlines()[-1]
    assert said.startswith("unread and dropped: 2 of overtaken/1. ")
    way = shlex.split(said.partition("`stockade ")[2].partition("`")[0])
    assert at.lines(*way)[1:] == [["overtaken", "1", "3"]], "the other partition stays where it is"
    assert at.lines("groups", "describe", "late", "--topic", "overtaken")[-1] == ["overtaken", "1", "-", "3", "4", "1"]
    at.says("topics", "trim", "overtaken", "--partition", "1", "--before", "4")
    at.says("claim", "late", "overtaken/1", "--session", session)  # as a member does, again and again
    said = at.says("groups", "describe", "late").splitlines()[-1]
    way = shlex.split(said.partition("`stockade ")[2].partition("`")[0])
    assert at.lines(*way)[1:] == [["overtaken", "1", "4"]]


def test_a_command_runs_only_while_it_owns_a_resource(at: Operator, session: str) -> None:
    script = 'echo "$STOCKADE_GROUP $STOCKADE_RESOURCE $STOCKADE_GENERATION $STOCKADE_FENCE_EPOCH"; exit 7'
    assert at.call("own", "services", "scheduler", "--", "sh", "-c", script).exit_code == 7
    resources = at.tells("groups", "describe", "services")["resources"]
    assert [(each["resource"], each["owned"]) for each in resources] == [("scheduler", False)]
    at.says("claim", "services", "scheduler", "--session", session)
    taken = at.call("own", "services", "scheduler", "--", "true")
    assert (taken.exit_code, "(GENERATION_FENCED)" in taken.stderr) == (1, True)
    assert at.call("own", "services", "scheduler", "--generation", "0", "--", "true").exit_code == 0


def test_several_resources_are_owned_in_one_step_or_not_at_all(at: Operator, session: str) -> None:
    claimed = at.tells("claim", "shards", "7", "--also", "8", "--session", session)
    assert [(each["resource"], each["fence_epoch"]) for each in claimed] == [("7", 1), ("8", 1)]
    assert at.call("own", "shards", "9", "--also", "8", "--", "true").exit_code != 0
    script = 'test "$STOCKADE_RESOURCE" = 9 && test "${STOCKADE_OWNED#*8}" != "$STOCKADE_OWNED"'
    taking = ["own", "shards", "9", "--also", "8", "--generation", "0", "--sever", "resource"]
    assert at.call(*taking, "--", "sh", "-c", script).exit_code == 0
    assert at.call("sessions", "renew", session).exit_code == 0, "only the resource was taken"


def test_several_resources_are_given_up_in_one_step_or_not_at_all(at: Operator, session: str) -> None:
    def owned() -> list[str]:
        resources = at.tells("groups", "describe", "leaving")["resources"]
        return [each["resource"] for each in resources if each["owned"]]

    at.says("claim", "leaving", "1", "--also", "2", "--also", "3", "--session", session)
    assert at.says("disown", "leaving", "1", "--also", "2", "--session", session) == "1: given up\n2: given up\n"
    assert owned() == ["3"]
    other = at.says("sessions", "open", "other", "--ttl", "120").strip()
    at.says("claim", "leaving", "2", "--session", other)
    code, problem = at.refused("disown", "leaving", "3", "--also", "2", "--session", session)
    assert (code, problem["code"], owned()) == (1, "NOT_OWNER", ["2", "3"])
    given_up = at.tells("disown", "leaving", "3", "--also", "1", "--session", session)
    assert given_up == [{"group": "leaving", "resource": name, "owned": False} for name in ("3", "1")]
    at.says("sessions", "end", other)


def test_a_command_is_started_again_with_a_new_epoch_when_its_resources_are_free_again(
    at: Operator, tmp_path: Path
) -> None:
    script = _run_twice(tmp_path, "FENCE_EPOCH", 'sessions end "$STOCKADE_SESSION"')
    done = at.call("own", "services", "twice", "--also", "more", "--reacquire", "--ttl", "2", "--grace", "0", *script)
    assert done.exit_code == 7, done.output
    assert (tmp_path / "epochs").read_text().split() == ["1", "2"]
    assert "lost twice" in done.stderr
    assert "acquired again: twice with fence epoch 2, more with fence epoch 2; COMMAND is started again" in done.stderr


def test_a_holder_that_was_evicted_holds_again_with_a_new_epoch(at: Operator, tmp_path: Path) -> None:
    at.says("topics", "create", "again")
    script = _run_twice(tmp_path, "EPOCH", "fence again --yes")
    done = at.call("hold", "again", "--reacquire", "--ttl", "2", "--grace", "0", *script)
    assert done.exit_code == 7, done.output
    first, second = map(int, (tmp_path / "epochs").read_text().split())
    assert second > first
    assert f"again: acquired again with epoch {second}; COMMAND is started again" in done.stderr


def _run_twice(folder: Path, epoch: str, losing: str) -> list[str]:
    """A COMMAND that notes its epoch; the first run loses what it has by this command, the second one ends with 7."""
    noted = folder / "epochs"
    lines = [
        f"test -e {noted} && again=yes",
        f'echo "$STOCKADE_{epoch}" >> {noted}',
        'test -n "${again:-}" && exit 7',
        f"{sys.executable} -m stockade {losing}",
        "sleep 600",
    ]
    return ["--", "sh", "-c", "\n".join(lines)]


def test_a_command_is_ended_when_its_resource_is_taken_over(at: Operator, session: str) -> None:
    claim = ["-m", "stockade", "claim", "services", "worker", "--generation", "0", "--session", session]
    taker = f"import subprocess, sys, time; subprocess.run([sys.executable, *{claim}], check=True); time.sleep(600)"
    lost = at.call("own", "services", "worker", "--ttl", "2", "--grace", "0", "--", sys.executable, "-c", taker)
    assert lost.exit_code == 5, lost.output
    assert "lost worker" in lost.stderr


def test_producers_are_listed_described_and_fenced(at: Operator) -> None:
    first = at.tells("producers", "init", "mirror")
    assert at.lines("producers", "list", "--prefix", "mirr")[1] == ["mirror", str(first["producer_id"]), "0"]
    at.says("topics", "create", "mirrored")
    at.says("produce", "mirrored", "--name", "mirror", stdin="x\ny\n")
    status = at.tells("producers", "status", "mirror")
    assert [(each["topic"], each["last_seq"], each["last_offset"]) for each in status["partitions"]] == [
        ("mirrored", 1, 1)
    ]
    assert at.lines("producers", "status", str(first["producer_id"]))[-1][0] == "mirrored/0"
    assert at.tells("producers", "fence", "mirror")["producer_epoch"] == status["producer_epoch"] + 1
    assert at.says("producers", "init").startswith("anonymous: ")
    code, problem = at.refused("producers", "status", "nobody")
    assert (code, problem["code"]) == (1, "NOT_FOUND")


@pytest.mark.parametrize("denying", [1, 2])
def test_a_node_that_refuses_the_question_is_named_and_if_all_do_the_command_fails(
    cluster: FakeCluster, run: Run, monkeypatch: pytest.MonkeyPatch, denying: int
) -> None:
    """A principal without the right was told that nodes do not answer, and an empty list with exit code 0."""
    asked = []

    async def tell(client: Client, node: str, most: int) -> RefusedWrites:
        asked.append(node)
        if len(asked) <= denying:
            raise PermissionDenied("principal bob lacks the right: read cluster")
        return RefusedWrites(node, [])

    monkeypatch.setattr(Client, "refused_writes", tell)
    done = run("refused", "--json")
    assert (len(asked), done.exit_code, done.stdout) == (2, int(denying == 2), "")
    if denying == 1:
        assert done.stderr == "without n1: principal bob lacks the right: read cluster\n"
    else:
        assert json.loads(done.stderr)["code"] == "PERMISSION_DENIED"


def test_refused_writes_and_metrics_come_a_line_each(at: Operator) -> None:
    at.says("topics", "create", "shut", "--require-fence")
    assert at.call("produce", "shut", stdin="x\n").exit_code == 1
    refused = [json.loads(line) for line in at.says("refused", "--output", "json").splitlines()]
    assert ("n1", "shut", "FENCING_TOKEN_REQUIRED") in [(r["node_id"], r["topic"], r["code"]) for r in refused]
    assert "shut/0" in at.says("refused")
    metrics = [json.loads(line) for line in at.says("metrics", "--match", "append", "--output", "json").splitlines()]
    assert {"stockade_appended_records_total"} <= {each["metric"] for each in metrics}
    assert at.lines("metrics", "--node", "n1")[1][0] == "n1"
    assert at.call("metrics", "--node", "n9").exit_code == 1


def test_a_batch_that_came_out_of_order_and_was_stored_since_is_counted_and_not_listed(at: Operator) -> None:
    """A gap of a healthy pipeline: a batch overtook another one, was refused, sent again and stored."""
    at.says("topics", "create", "order")

    async def overtake(*sequences: int) -> int:
        async with Client(at.cluster.url) as client:
            pair = await client.init_producer()
            for sequence in sequences:
                stamp = Stamp(pair.producer_id, pair.producer_epoch, sequence)
                with suppress(OutOfOrderSequence):
                    await client.append("order", 0, message_from_columns([None], [b"v"], [0], None), stamp=stamp)
            return pair.producer_id

    healthy, stuck = asyncio.run(overtake(1, 0, 1)), asyncio.run(overtake(0, 2))
    listed = [json.loads(line) for line in at.says("refused", "--output", "json").splitlines()]
    marks = {each["producer_id"]: each["stored_since"] for each in listed if each["topic"] == "order"}
    assert marks == {healthy: True, stuck: False}
    shown = [line for line in at.says("refused").splitlines() if "order/0" in line]
    assert len(shown) == 1
    assert f"{stuck}, epoch" in shown[0]
    assert at.says("refused").splitlines()[-1] == "and 1 that came out of order and are stored since; --all lists them"
    assert at.says("refused", "--all").count("order/0") == 2


def test_a_deleted_topic_is_gone(at: Operator) -> None:
    at.says("topics", "create", "gone")
    assert at.says("topics", "delete", "gone") == "gone: deleted\n"
    code, problem = at.refused("topics", "describe", "gone")
    assert (code, problem["code"], problem["topic"]) == (1, "UNKNOWN_TOPIC_OR_PARTITION", "gone")
    assert "`stockade topics list`" in problem["hint"]


def test_names_of_the_cluster_complete(at: Operator) -> None:
    at.says("topics", "create", "complete-me")
    at.says("topics", "create", "complete-you")
    assert completed(at, "stockade topics describe comp") == ["complete-me", "complete-you"]
    assert completed(at, "stockade metrics --node ") == ["n1"]
    assert "describe" in completed(at, "stockade topics ")
    with at.cluster.unreachable():
        assert completed(at, "stockade topics describe comp") == []


def completed(at: Operator, line: str) -> list[str]:
    """What bash would offer behind ``line``."""
    words = line.split()
    at_word = len(words) if line.endswith(" ") else len(words) - 1
    asked = {"_STOCKADE_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(at_word)}
    environment = asked | {"STOCKADE_URL": at.cluster.url}
    done = CliRunner().invoke(main, [], prog_name="stockade", env=environment)
    return [offer.partition(",")[2] for offer in done.stdout.split()]


def test_h_is_help_and_json_is_short_for_output_json(at: Operator) -> None:
    for words in ([], ["topics"], ["topics", "create"], ["hold"], ["chaos", "run"]):
        assert at.says(*words, "-h") == at.says(*words, "--help")
    at.says("topics", "create", "short", "--json")
    assert json.loads(at.says("topics", "describe", "short", "--json")) == at.tells("topics", "describe", "short")
    at.says("produce", "short", "--json", stdin="one\n")
    assert json.loads(at.says("consume", "short", "--json"))["value"] == "one"
    assert json.loads(at.says("topics", "list", "--json", "--output", "table"))["topics"]


def test_an_address_without_a_scheme_is_http(at: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    address = at.cluster.url.removeprefix("http://")
    at.says("topics", "create", "plain")
    assert "plain" in at.says("topics", "list", "--url", address)
    monkeypatch.setenv("STOCKADE_URL", address)  # the client reads it, too
    assert CliRunner().invoke(main, ["topics", "describe", "plain"]).exit_code == 0
    assert "plain" in at.says("topics", "list", "--url", f"127.0.0.1:1,{address}/")
    refused = at.call("topics", "list", "--url", "nonsense")
    assert (refused.exit_code, "'nonsense' is not a base URL" in refused.stderr) == (2, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["topics", "create", "bad/name"],
            "name: not 1 to 249 of letters, digits, '.', '_', '-' other than '.' and '..'",
        ),
        (["topics", "create", "x", "--partitions", "x"], "'--partitions': 'x' is not a valid whole number."),
        (["topics", "create", "x", "--config", "retention_ms=x"], "retention_ms: 'x' is not a whole number"),
        (["topics", "create", "x", "--config", "require_fence=x"], "require_fence: 'x' is not true or false"),
        (["sessions", "open", "x", "--ttl", "x"], "'--ttl': 'x' is not a valid number."),
    ],
)
def test_bad_input_is_refused_in_plain_words(at: Operator, words: list[str], said: str) -> None:
    refused = at.call(*words)
    assert refused.exit_code in {1, 2}
    assert said in refused.stderr


def test_advice_names_options_that_there_are(at: Operator, session: str) -> None:
    at.says("topics", "create", "advised")
    at.tells("grants", "acquire", "advised", "--session", session)
    for words in (["hold", "advised", "--", "true"], ["produce", "advised", "--exclusive"]):
        refused = at.call(*words, stdin="x\n")
        assert "To take its place: --mode ExclusiveWithFencing (`stockade produce`: --fencing)" in refused.stderr, (
            refused.output
        )
    assert "--mode" in at.says("hold", "--help") and "--fencing" in at.says("produce", "--help")
