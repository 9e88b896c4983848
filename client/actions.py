"""What a lane decides, for its sender to do."""

from dataclasses import dataclass

from ..partition.errors import StockadeError
from .batches import Batch, Receipt


@dataclass(frozen=True, slots=True)
class Send:
    """Send this batch now; report with ``written``, then ``stored`` or ``refused``."""

    batch: Batch


@dataclass(frozen=True, slots=True)
class Settle:
    """These batches have their outcome; hand it to whoever waits."""

    settled: "list[Settled]"


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do before ``until_s`` (None: before something else happens)."""

    until_s: float | None


Action = Send | Settle | Wait
Settled = tuple[Batch, Receipt | StockadeError]
