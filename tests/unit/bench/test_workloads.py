"""Options of the benchmark, and the order of its turns."""

import pytest
from workloads import BY_NAME, COUNTS, Cell, Options, cells_of, command_line, parsed, turns

PEERS = ["etcd", "kafka", "nats"]


def test_without_options_everything_is_measured() -> None:
    options = parsed([], PEERS)
    assert options == Options(systems=("stockade", *PEERS))
    assert options.counts == COUNTS
    assert options.only == tuple(BY_NAME)
    assert command_line(options, PEERS) == "make bench"


@pytest.mark.parametrize(
    ("arguments", "systems"),
    [
        (["--peers", "none"], ("stockade",)),
        (["--peers", "nats,etcd"], ("stockade", "etcd", "nats")),
    ],
)
def test_peers_are_chosen_by_name(arguments: list[str], systems: tuple[str, ...]) -> None:
    assert parsed(arguments, PEERS).systems == systems


def test_the_command_line_says_how_to_repeat_a_run() -> None:
    arguments = [
        "--rounds=1",
        "--seconds=0.5",
        "--peers=none",
        "--only=producer,idle",
        "--partitions=16,1",
    ]
    options = parsed(arguments, PEERS)
    again = "make bench ROUNDS=1 SECONDS=0.5 PEERS=none ONLY=idle,producer PARTITIONS=1,16"
    assert command_line(options, PEERS) == again
    made = [f"--{part.replace('=', ' ', 1)}".lower().split() for part in again.split()[2:]]
    assert parsed([word for pair in made for word in pair], PEERS) == options


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--peers", "etcd,zookeeper"], "no zookeeper; there are etcd, kafka, nats"),
        (["--only", "speed"], "--only: no speed"),
        (["--partitions", "2"], "--partitions: no 2"),
        (["--rounds", "0"], "at least 1"),
        (["--seconds", "0"], "more than 0"),
    ],
)
def test_unknown_names_in_the_options_are_refused_by_name(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parsed(arguments, PEERS)
    assert said in capsys.readouterr().err


def test_each_system_has_one_turn_a_round_and_each_round_begins_with_another() -> None:
    order = list(turns(3, ["a", "b", "c"]))
    assert [name for _, name in order] == ["a", "b", "c", "b", "c", "a", "c", "a", "b"]
    assert [number for number, _ in order] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert list(turns(2, [])) == []


def test_a_turn_measures_the_figures_that_the_system_has_and_the_options_want() -> None:
    able = {"producer": (1, 16, 64), "requests": (1,), "idle": (16,), "consumer": (1,)}
    options = Options(only=("idle", "requests", "producer"), counts=(1, 16))
    assert cells_of("kafka", able, options) == [
        *(Cell("requests", "kafka", 1), Cell("producer", "kafka", 1)),
        *(Cell("idle", "kafka", 16), Cell("producer", "kafka", 16)),
    ]
