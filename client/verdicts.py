"""What a refusal means for the batch that got it, and for those behind it. Pure."""

from typing import Any

from ..partition.errors import (
    CorruptMessage,
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidRequest,
    LeaderNotAvailable,
    MessageTooLarge,
    OutOfOrderSequence,
    ProducerFenced,
    RequestTimedOut,
    StockadeError,
    UnknownProducerId,
)
from .batches import Batch
from .errors import ClientClosed, with_fields

_OF_ONE_BATCH = (CorruptMessage, InvalidRecord, InvalidRequest, MessageTooLarge, OutOfOrderSequence, RequestTimedOut)


def is_forgotten(error: StockadeError) -> bool:
    """Whether the partition no longer knows this producer in this epoch, which a new epoch heals (SEMANTICS 9.7)."""
    if isinstance(error, UnknownProducerId):
        return error.fields.get("log_start") is not None
    return isinstance(error, InvalidProducerEpoch)


def may_heal(error: StockadeError) -> bool:
    """Whether the same batch may be stored when it is sent again."""
    return error.retriable or isinstance(error, UnknownProducerId)


def is_of_one_batch(error: StockadeError) -> bool:
    """Whether the next batch may fare better: the refusal is not about the partition, the fence or the producer."""
    return isinstance(error, _OF_ONE_BATCH) or error.retriable or is_forgotten(error)


def is_certified_absent(error: StockadeError) -> bool:
    """Whether the refusal certifies that no attempt of this batch was stored."""
    return _outcome(error).get("state") == "absent"


def committed_offset(error: StockadeError) -> int | None:
    """Where an earlier attempt of the batch was stored, if the refusal certifies that it was."""
    outcome = _outcome(error)
    return outcome.get("base_offset") if outcome.get("state") == "committed" else None


def _outcome(error: StockadeError) -> dict[str, Any]:
    return error.fields.get("outcome") or {}


def expiry_error(batch: Batch, delivery_timeout_ms: int) -> StockadeError:
    """Why a batch fails whose delivery time is over."""
    waited = f"not answered within {delivery_timeout_ms} ms"
    if batch.maybe_stored:
        return RequestTimedOut(f"{waited}; the outcome is unknown")
    return batch.last_error or LeaderNotAvailable(f"not sent: {waited}")


def halted(error: StockadeError) -> StockadeError:
    """``error``, which halted a partition, as whoever sends there later is told it: it may be long over by then."""
    if isinstance(error, ProducerFenced | ClientClosed):
        return error
    return with_fields(error, f"the partition has halted, `recover` takes records again; why it has: {error.detail}")


def verdict(batch: Batch, error: StockadeError) -> StockadeError:
    """``error`` as this batch's own, with an outcome certificate that is true for it."""
    answered = batch.last_error.fields.get("outcome") if batch.last_error is not None else None
    own = {"state": "unknown" if batch.maybe_stored else "absent", "base_offset": None, "last_offset": None}
    return with_fields(error, outcome=answered or own)
