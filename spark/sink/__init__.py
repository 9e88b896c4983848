"""Writing to topics exactly once: tasks stage rows, the driver decides in one record, stages then join the log.

In: rows of Spark and the options of a write. Out: stages, manifests in a control topic, appended batches. Only
`writer.py` imports Spark. docs/spark-sink.md argues the protocol.
May import: client, client.blocking, partition, spark.
"""
