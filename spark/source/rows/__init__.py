"""From the cluster's answers to rows and columns of Spark.

In: fetched batches. Out: Arrow batches. Pure, without Spark.
May import: client.api, partition, spark.source.planning.
"""
