"""How soon there is a leader, and who it is. Simulated seconds, so nothing here depends on the machine."""

from simulation.world import Setting, World

SEEDS = range(60)


def time_to_replace_a_crashed_leader(seed: int) -> float:
    world = World(seed, Setting(3))
    world.run_until(lambda: bool(world.leaders()))
    world.run(0.5)
    (leader,) = world.leaders()
    crashed_at = world.now
    world.crash(leader)
    world.run_until(lambda: any(node != leader for node in world.leaders()))
    return world.now - crashed_at


def test_the_first_voter_of_a_new_group_leads_it() -> None:
    for seed in SEEDS:
        world = World(seed, Setting(3))
        world.run_until(lambda world=world: bool(world.leaders()))  # type: ignore[misc]
        for process in world.processes.values():
            process.open_group(2)
        world.run(0.3)
        assert world.leaders(2) == [world.nodes[0]], seed


def test_a_split_vote_is_asked_anew_and_not_waited_out() -> None:
    """Two followers that ask at once refuse each other; the shortest election timeout is 0.6 s."""
    times = [time_to_replace_a_crashed_leader(seed) for seed in SEEDS]
    assert max(times) < 0.6, sorted(times)[-5:]
