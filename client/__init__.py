"""Floor 3: the Python client. Producer, consumer, sessions and fences as context managers.

Talks HTTP to the cluster and never imports the server.

In: records and requests of an application.
Out: receipts, records, refusals as exceptions.
May import: client.blocking, client.consumer, client.producer, client.producer.queue, client.transport, partition,
partition.log, partition.records.
"""
