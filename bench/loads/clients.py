"""The Python clients of Stockade and Kafka, as programs use them: producers and consumers of records.

Record i goes to partition i modulo their number. Clients have their defaults, except where a comment says why not.
"""

from figures import Load
from processor import Watch

from stockade import Consumer, Producer

CHUNK = 1000
"""Records between two looks at the clock."""
CONSUME_MESSAGES = 1000
WAIT_S = 30.0
LOG_ERRORS = 3
FLUSH_S = 100.0
"""Longest time of the last flush, which is measured, too: librdkafka buffers 100,000 records by default, and brokers
that sync take a minute for them.
"""


async def produce(urls: list[str], topic: str, partitions: int, size: int, seconds: float) -> Load:
    """Send records by Stockade's Producer, one a ``send``, as fast as it takes them; count them when all are stored."""
    value, count = b"x" * size, 0
    async with Producer(",".join(urls)) as producer:
        _ = await producer.client.topic(topic)
        watch = Watch()
        while watch.seconds() < seconds:
            for number in range(count, count + CHUNK):
                _ = await producer.send(topic, value, partition=number % partitions)
            count += CHUNK
        await producer.flush()
        return watch.load(count)


async def consume(urls: list[str], topic: str, count: int) -> Load:
    """Read ``count`` records of a topic as objects, one after the other, from the first one on."""
    seen = 0
    async with Consumer(",".join(urls)) as consumer:
        watch = Watch()
        async for _ in consumer.read(topic):
            seen += 1
            if seen == count:
                break
        return watch.load(seen)


async def consume_arrow(urls: list[str], topic: str, count: int) -> Load:
    """Read at least ``count`` records of a topic as Arrow batches, as they are stored."""
    seen = 0
    async with Consumer(",".join(urls)) as consumer:
        watch = Watch()
        async with consumer.pieces(topic) as pieces:
            async for piece in pieces:
                seen += piece.batch.num_rows
                if seen >= count:
                    break
        return watch.load(seen)


def kafka_produce(servers: str, topic: str, partitions: int, size: int, seconds: float) -> Load:
    """``produce`` by Kafka's producer: idempotent, acknowledged by all replicas that are in sync."""
    from confluent_kafka import Producer as KafkaProducer  # noqa: PLC0415  # only where it is measured

    failed = []

    def settled(error: object, _: object) -> None:
        if error is not None:
            failed.append(error)

    settings = {"bootstrap.servers": servers, "enable.idempotence": True, "acks": "all", "log_level": LOG_ERRORS}
    producer = KafkaProducer(settings)
    producer.list_topics(topic, timeout=WAIT_S)
    value, count = b"x" * size, 0
    watch = Watch()
    while watch.seconds() < seconds:
        for number in range(count, count + CHUNK):
            while True:
                try:
                    producer.produce(topic, value, partition=number % partitions, on_delivery=settled)
                    break
                except BufferError:  # the queue is full
                    producer.poll(0.01)
        count += CHUNK
        producer.poll(0)
    assert producer.flush(FLUSH_S) == 0, "not all was acknowledged"
    assert not failed, failed[0]
    return watch.load(count)


def kafka_consume(servers: str, topic: str, count: int) -> Load:
    """``consume`` by Kafka's consumer, CONSUME_MESSAGES a call at most."""
    from confluent_kafka import Consumer as KafkaConsumer  # noqa: PLC0415
    from confluent_kafka import TopicPartition  # noqa: PLC0415

    consumer = KafkaConsumer({"bootstrap.servers": servers, "group.id": "bench", "enable.auto.commit": False})
    partitions = consumer.list_topics(topic, timeout=WAIT_S).topics[topic].partitions
    watch = Watch()
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    seen = 0
    while seen < count:
        messages = consumer.consume(CONSUME_MESSAGES, WAIT_S)
        assert messages, "nothing came"
        for message in messages:
            assert message.error() is None, message.error()
            seen += message.value() is not None
    return watch.load(seen)
