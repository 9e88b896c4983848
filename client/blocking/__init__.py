"""The client for code without an event loop: `stockade.sync`, and a reader and a writer that Spark can pickle.

In: calls from any thread.
Out: the same answers as the asynchronous client.
May import: client, client.api, client.consumer, client.producer, client.producer.queue, client.session,
client.transport, partition, partition.api, partition.records.
"""
