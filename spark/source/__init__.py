"""Reading topics: what a query reads (`planning`), what the cluster has (`topics.py`), and rows for Spark (`rows`).

In: options of a read. Out: one task for each range of offsets, and Arrow batches. Only `stream.py` imports Spark.
May import: client.blocking, partition, spark, spark.source.planning, spark.source.rows.
"""
