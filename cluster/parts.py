"""The parts of the controller's state, made, saved and loaded together."""

from .acquiring import Acquiring
from .catalog import Catalog
from .membership import Membership
from .ownership import Ownership
from .promises import Promises
from .reader_fences import ReaderFences
from .refs import FenceRef
from .registry import Registry
from .resources import Resources
from .sessions import Sessions
from .state import State


class Parts:
    """``lease_clock_ms`` is the replicated clock; ``term`` and ``applied_index`` are the last command's;
    ``catalog_index`` is that of the last command that changed what nodes must know of topics and of each other. The
    parts are open to reading: tests and invariants look at them, nobody but apply changes them. ``severing`` has what
    those must wait for who severed others, ``leaving`` what those must who lost something.
    """

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Forget everything."""
        self.applied_index: int = 0
        self.term: int = 0
        self.lease_clock_ms: int = 0
        self.catalog_index: int = 0
        self.catalog: Catalog = Catalog()
        self.sessions: Sessions = Sessions()
        self.ownership: Ownership = Ownership(self.catalog)
        self.acquiring: Acquiring = Acquiring(self.catalog, self.ownership)
        self.resources: Resources = Resources()
        self.reader_fences: ReaderFences = ReaderFences()
        self.severing: Promises = Promises(self.is_over, self.reader_fences.is_installed)
        self.leaving: Promises = Promises(self.is_over, self.reader_fences.is_installed)
        self.registry: Registry = Registry()
        self.membership: Membership = Membership(self.catalog)

    def is_over(self, fence: FenceRef) -> bool:
        """Whether a partition is known to refuse the token of an ended grant; so does one that is no more."""
        return self.ownership.fences.is_over(fence) or self.catalog.locate(fence.group_id) is None

    def save(self) -> State:
        """Everything that decides future answers."""
        return State(
            applied_index=self.applied_index,
            term=self.term,
            lease_clock_ms=self.lease_clock_ms,
            catalog_index=self.catalog_index,
            catalog=self.catalog.save(),
            sessions=self.sessions.save(),
            ownership=self.ownership.save(),
            resources=self.resources.save(),
            resources_floor=self.resources.floor,
            reader_fences=self.reader_fences.save(),
            severing=self.severing.save(),
            leaving=self.leaving.save(),
            registry=self.registry.save(),
            membership=self.membership.save(),
        )

    def load(self, state: State) -> None:
        """Inverse of save, in place of all that is here."""
        self.begin()
        self.applied_index, self.term, self.lease_clock_ms = state.applied_index, state.term, state.lease_clock_ms
        self.catalog_index = state.catalog_index
        self.catalog.load(state.catalog)
        self.sessions.load(state.sessions)
        self.ownership.load(state.ownership)
        self.resources.load(state.resources, state.resources_floor)
        self.reader_fences.load(state.reader_fences)
        self.severing.load(state.severing)
        self.leaving.load(state.leaving)
        self.registry.load(state.registry)
        self.membership.load(state.membership)
