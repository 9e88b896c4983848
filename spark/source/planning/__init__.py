"""Plans which records a read takes: options, offset specifications, ranges for tasks, progress of a stream.

In: options and the bounds of logs. Out: ranges. Pure, without Spark.
May import: client, spark.
"""
