"""Topics as a Spark data source, `format("stockade")`, and the pipelines that are made of it.

In: options of Spark users. Out: DataFrames and streams, and rows in topics, each exactly once. `source` reads, `sink`
writes, `pipelines` are load, export and audit. Needs pyspark and pyarrow only, so that one zip file runs where Stockade
is not installed.
May import: client, partition, spark.sink, spark.source, spark.source.planning, spark.source.rows.
"""
