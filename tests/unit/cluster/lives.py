"""Lives of a controller: a little of everything that may be asked of it, most of it fine and some of it refused."""

import random
from itertools import islice

from stockade.cluster.controller.commands import Enrol, RenewSession

from .driver import MODES, House


def random_life(seed: int, steps: int = 300) -> House:
    """The house after so many steps; its ``log`` has the commands."""
    rng = random.Random(seed)
    house = House()
    for _ in range(steps):
        house.now_ms += rng.randint(0, 300)
        house.term += rng.random() < 0.02
        random_step(house, rng, rng.choice(["t", "u"]), f"{rng.choice('abcd')}{house.now_ms // 5_000}")
    return house


def random_step(house: House, rng: random.Random, topic: str, session: str) -> None:
    found = house.machine.catalog.topic(topic)
    match rng.randrange(11):
        case 0 if found is None or rng.random() < 0.7:
            house.topic(topic, partitions=3)
        case 0:
            house.delete(topic)
        case 1 | 2:
            house.open(session, 2_000)
        case 3:
            house.do(RenewSession(now_ms=house.now_ms, session=session))
        case 4:
            house.close(session)
        case 5 | 6 | 7:
            partitions = rng.sample(range(3), rng.randint(1, 3))
            house.acquire(session, partitions, rng.choice(MODES), topic=topic)
        case 8:
            house.init(rng.choice(["v", "w", None]), nonce=rng.choice([None, "x", "y"]))
        case 9 if found is not None:
            house.do(Enrol(now_ms=0, pid=1001, group_id=rng.choice(found.groups())))
        case _:
            for work in list(islice(house.machine.work(), rng.randint(0, 3))):
                if (report := house.tell(work)) is not None:
                    house.do(report)
