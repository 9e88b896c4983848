"""What a run depends on: its seed, and what a shrunk run leaves out. It is written and read as one command line."""

import argparse
from dataclasses import dataclass, fields

CHAOS_S = 5.0
SCRIPT = "python tests/simulation/run.py"


@dataclass(frozen=True)
class Plan:
    """A run. What is not given is drawn from the seed."""

    seed: int
    accident: str | None = None
    """Five nodes meet no other fault than this one (the name of a method of Nemesis)."""
    nodes: int | None = None
    groups: int | None = None
    chaos_s: float = CHAOS_S
    luck: int = 0
    """Another draw of every latency, with the same setting, load and faults."""
    calm: bool = False
    """Clocks do not drift, no message finds its buffer full."""
    without: frozenset[int] = frozenset()
    """Strikes that are left out, by their number."""
    spare: frozenset[str] = frozenset()
    """Kinds of faults that are left out; ``mend`` is one."""

    def line(self) -> str:
        """The command that repeats the run."""
        words = [SCRIPT]
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name == "seed" or value != each.default:
                words.append("--" + each.name.replace("_", "-"))
                words += [] if value is True else [_written(value)]
        return " ".join(words)


def _written(value: object) -> str:
    return ",".join(map(str, sorted(value))) if isinstance(value, frozenset) else str(value)


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that make a plan, but for the seed."""
    parser.add_argument("--accident", help="let five nodes meet this fault only, as late_acks")
    parser.add_argument("--nodes", type=int, help="so many nodes")
    parser.add_argument("--groups", type=int, help="so many groups")
    parser.add_argument("--chaos-s", type=float, default=CHAOS_S, help=f"seconds of load and faults ({CHAOS_S:g})")
    parser.add_argument("--luck", type=int, default=0, help="draw latencies anew (0)")
    parser.add_argument("--calm", action="store_true", help="no drifting clocks, no full buffers")
    parser.add_argument("--without", type=_numbers, default=frozenset(), help="strikes to leave out, as 3,7,8")
    parser.add_argument("--spare", type=_names, default=frozenset(), help="kinds of faults to leave out, as cut,mend")


def _numbers(text: str) -> frozenset[int]:
    return frozenset(map(int, text.split(",")))


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split(","))


def plan_of(arguments: argparse.Namespace, seed: int) -> Plan:
    """The plan that these options and a seed make."""
    given = {each.name: getattr(arguments, each.name) for each in fields(Plan) if each.name != "seed"}
    return Plan(seed=seed, **given)
