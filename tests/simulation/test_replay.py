"""A seed is all that a run depends on."""

from simulation.schedule import Run

from stockade.raft.messages import RaftMessage


def transcript(seed: int) -> list[tuple[float, str, str, RaftMessage]]:
    run = Run(seed)
    seen: list[tuple[float, str, str, RaftMessage]] = []
    check = run.world.network.on_sent

    def on_sent(source: str, target: str, group_id: int, message: RaftMessage) -> None:
        seen.append((run.world.now, source, target, message))
        check(source, target, group_id, message)

    run.world.network.on_sent = on_sent
    run.go()
    return seen


def test_a_seed_repeats_to_the_last_message() -> None:
    first = transcript(5)
    assert len(first) > 100
    assert transcript(5) == first
