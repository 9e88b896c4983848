"""SEMANTICS 6.1, 6.3 and 6.4 told a second time, as plainly as can be: one topic, no partitions to tell, no bytes.

What the controller decides is compared with it, command by command.
"""

from dataclasses import dataclass, field

BUSY, FENCED, TOO_HIGH, HOLD, BAD = "PRODUCER_BUSY", "PRODUCER_FENCED", "INVALID_FENCING_TOKEN", "HOLD_AND_WAIT", "BAD"


@dataclass
class Held:
    """A grant. ``whole``: of all partitions."""

    session: str
    name: str
    places: set[int]
    mode: str
    epoch: int | None
    whole: bool
    resume: int | None


@dataclass
class Waiting:
    """A ticket."""

    session: str
    name: str
    places: set[int]
    resume: int | None
    whole: bool


@dataclass
class Owned:
    """A resource."""

    owner: str | None
    generation: int
    fence_epoch: int


@dataclass
class Reference:
    """Who has what. ``acquire`` answers the grant, the ticket, or the code of the refusal."""

    epochs: list[int]
    grants: list[Held] = field(default_factory=list)
    line: list[Waiting] = field(default_factory=list)
    resources: dict[tuple[str, str], Owned] = field(default_factory=dict)

    def acquire(  # noqa: PLR0911 (a line for each row)
        self, session: str, name: str, wanted: set[int] | None, mode: str, resume: int | None
    ) -> Held | Waiting | str:
        places = set(range(len(self.epochs))) if wanted is None else set(wanted)
        mine = [grant for grant in self.grants if grant.session == session]
        same = [grant for grant in mine if (grant.name, grant.places) == (name, places)]
        same = [grant for grant in same if grant.mode != "Shared" or mode == "Shared"]
        if resume is not None and not (same and same[0].resume == resume):
            if any(resume < self.epochs[place] for place in places):
                return FENCED
            if any(resume > self.epochs[place] for place in places):
                return TOO_HIGH
        if same:
            return same[0]
        tickets = [ticket for ticket in self.line if ticket.session == session]
        if tickets and mode == "WaitForExclusive" and tickets[0].places == places:
            return tickets[0]
        if any(grant.places & places for grant in mine if grant.mode != "Shared"):
            return BAD
        if tickets:
            return HOLD
        return self._by_mode(Waiting(session, name, places, resume, wanted is None), mode, bool(mine))

    def _by_mode(self, asked: Waiting, mode: str, holds: bool) -> Held | Waiting | str:
        others = [g for g in self.grants if g.session != asked.session and g.places & asked.places]
        exclusive = [grant for grant in others if grant.mode != "Shared"]
        before = [ticket for ticket in self.line if ticket.places & asked.places]
        if mode == "Shared":
            return BUSY if exclusive or before else self._give(asked, mode, free=True)
        if mode == "Exclusive":
            return BUSY if others or before else self._give(asked, mode, free=True)
        if mode == "ExclusiveWithFencing":
            self.line = [ticket for ticket in self.line if ticket not in before]
            self.grants = [grant for grant in self.grants if grant not in others]
            given = self._give(asked, mode, free=not others)
            self.promote()
            return given
        if not others and not before:
            return self._give(asked, mode, free=True)
        if holds:
            return HOLD
        self.line.append(asked)
        return asked

    def _give(self, asked: Waiting, mode: str, *, free: bool) -> Held:
        epoch = None
        if mode != "Shared":
            own = [g for g in self.grants if g.session == asked.session and g.places & asked.places]
            self.grants = [grant for grant in self.grants if grant not in own]
            epoch = 1 + max(self.epochs[place] for place in asked.places)
            epoch = asked.resume if asked.resume is not None and free else epoch
            for place in asked.places:
                self.epochs[place] = epoch
        held = Held(asked.session, asked.name, asked.places, mode, epoch, asked.whole, asked.resume)
        self.grants.append(held)
        if epoch is not None:
            self.promote()  # an upgrade may have freed more than it took
        return held

    def promote(self) -> None:
        blocked: set[int] = set()
        for ticket in list(self.line):
            if ticket.resume is not None and ticket.resume < max(self.epochs[place] for place in ticket.places):
                if len(blocked) < len(self.epochs):
                    self.line.remove(ticket)
            elif ticket.places & blocked or any(grant.places & ticket.places for grant in self.grants):
                blocked |= ticket.places
            else:
                self.line.remove(ticket)
                epoch = ticket.resume if ticket.resume is not None else 1 + max(self.epochs[p] for p in ticket.places)
                for place in ticket.places:
                    self.epochs[place] = epoch
                mode = "WaitForExclusive"
                held = Held(ticket.session, ticket.name, ticket.places, mode, epoch, ticket.whole, ticket.resume)
                self.grants.append(held)

    def end(self, session: str, places: set[int], name: str, mode: str) -> None:
        """One grant."""
        gone = next(g for g in self.grants if (g.session, g.places, g.name, g.mode) == (session, places, name, mode))
        self.grants.remove(gone)
        self.promote()

    def leave(self, sessions: set[str]) -> None:
        """Everything of these sessions ends at once."""
        had = any(grant.session in sessions for grant in self.grants) or any(t.session in sessions for t in self.line)
        self.grants = [grant for grant in self.grants if grant.session not in sessions]
        self.line = [ticket for ticket in self.line if ticket.session not in sessions]
        for row in self.resources.values():
            if row.owner in sessions:
                row.owner = None
        if had:
            self.promote()

    def cancel(self, session: str) -> None:
        before = len(self.line)
        self.line = [ticket for ticket in self.line if ticket.session != session]
        if len(self.line) < before:
            self.promote()

    def fence(self, places: set[int]) -> None:
        had = any(grant.places & places for grant in self.grants)
        self.grants = [grant for grant in self.grants if not grant.places & places]
        for place in places:
            self.epochs[place] += 1
        if had:  # in any case from feature level 2 on
            self.promote()

    def grow(self) -> None:
        number = len(self.epochs)
        self.epochs.append(0)
        things: list[Held | Waiting] = [*self.grants, *self.line]
        for thing in things:
            if thing.whole:
                thing.places.add(number)
        for grant in self.grants:
            if grant.whole and grant.epoch is not None:
                self.epochs[number] = grant.epoch

    def own(self, session: str, key: tuple[str, str], generation: int | None) -> bool:
        """Whether it was granted; who loses it loses everything, and must be told so by ``leave``."""
        row = self.resources.get(key)
        if row is None:
            self.resources[key] = Owned(session, 1, 1)
            return True
        if generation == 0:
            row.generation = 1
        elif row.owner is None:
            row.generation = max(row.generation + 1, generation or 0)
        elif row.owner == session:
            if generation is None or generation <= row.generation:
                return True
            row.generation = generation
        elif generation is None or generation < row.generation:
            return False
        else:
            row.generation = max(row.generation + 1, generation)
        loser, row.owner = row.owner, session
        row.fence_epoch += 1
        if loser is not None and loser != session:
            self.leave({loser})
        return True
