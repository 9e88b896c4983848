"""Jobs made of the data source: load, export, audit. Each is a function, a command, and a script for spark-submit.

In: a Spark session, paths, topics. Out: rows in topics, files, an audit's verdict; progress as lines. They need pyspark
and pyarrow, nothing else.
May import: spark, spark.sink, spark.source, spark.source.planning.
"""
