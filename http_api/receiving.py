"""The body of an append, or of a stage: from the request to one validated batch, and the partition it is for."""

from ..cluster.service import Partition
from ..partition.errors import NotLeaderOrFollower, StockadeError
from ..partition.records import Batch
from . import bodies
from .batches import BATCH_BYTES_MAX, FORMS, body_bytes_max, read_batch
from .call import Call
from .writing import find_partition, now_ms


async def receive_batch(call: Call, topic_id: int | None) -> tuple[Partition, Batch]:
    """What is wrong with the body is told before what is wrong with the partition, except that it is led elsewhere."""
    topic, number = call.parameters.topic(), call.parameters.partition()
    form = bodies.check_type(call, FORMS)
    found = await find_partition(call, topic, number, topic_id)
    batch_bytes_max = BATCH_BYTES_MAX
    if not isinstance(found, StockadeError):
        call.partition, batch_bytes_max = found, found.config.max_batch_bytes
    body = await bodies.read(call, body_bytes_max(batch_bytes_max))
    if isinstance(found, NotLeaderOrFollower) and not call.is_forwarded:
        raise found  # who leads gets the body, and looks at it
    batch = read_batch(form, body, now_ms=now_ms(), batch_bytes_max=batch_bytes_max)
    if isinstance(found, StockadeError):
        raise found
    return found, batch
