"""Stockade from Spark, cell by cell: open it as a notebook (VS Code, Jupytext), or run it as it is.

It wants a cluster (`make cluster`), whose address is STOCKADE_URL or http://127.0.0.1:7101, and leaves a topic behind.
"""

# %% A session. Spark finds the data source by itself.
import json
import os
import sys
import tempfile
import urllib.request
import uuid

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
URL = os.environ.get("STOCKADE_URL", "http://127.0.0.1:7101")
spark = SparkSession.builder.appName("notebook").getOrCreate()
folder = tempfile.mkdtemp(prefix="stockade-notebook-")

# %% A topic.
topic = f"notebook-{uuid.uuid4().hex[:8]}"
definition = json.dumps({"name": topic, "partitions": 2}).encode()
request = urllib.request.Request(f"{URL}/v1/topics", definition, {"Content-Type": "application/json"})  # noqa: S310
urllib.request.urlopen(request).close()  # noqa: S310

# %% Write a table, exactly once: under one name it is written once, however often this cell is run.
orders = spark.range(1000).select(
    F.concat(F.lit("customer-"), F.col("id") % 10).alias("key"),
    F.to_json(F.struct(F.col("id").alias("order"), (F.col("id") * 3 % 97).alias("amount"))).alias("value"),
)
for _ in range(2):
    orders.write.format("stockade").options(url=URL, topic=topic, sink=f"{topic}-load").mode("append").save()

# %% Read it back: the columns are those of Spark's Kafka connector.
records = spark.read.format("stockade").options(url=URL, subscribe=topic).load()
assert records.count() == 1000
parsed = records.select(
    F.col("key").cast("string").alias("customer"),
    F.from_json(F.col("value").cast("string"), "order long, amount long").alias("o"),
)
totals = parsed.groupBy("customer").agg(F.count("*").alias("orders"), F.sum("o.amount").alias("amount"))
totals.orderBy("customer").show()

# %% Follow it as a stream that goes on where its checkpoint says. Here: what is there now, then the end.
stream = spark.readStream.format("stockade").options(url=URL, subscribe=topic, startingOffsets="earliest").load()
large = stream.where(F.get_json_object(F.col("value").cast("string"), "$.amount").cast("long") > 90)
writer = large.select("key", "value", "timestamp").writeStream.option("checkpointLocation", f"{folder}/checkpoint")
writer.trigger(availableNow=True).format("parquet").start(f"{folder}/large").awaitTermination()
print(spark.read.parquet(f"{folder}/large").count(), "large orders in", folder)

# %% Only some records: from offset 390 of partition 0 to its end.
places = json.dumps({topic: {"0": 390}})
tail = spark.read.format("stockade").options(url=URL, assign=json.dumps({topic: [0]}), startingOffsets=places).load()
tail.select("partition", "offset", F.col("value").cast("string")).orderBy("offset").show(5, truncate=False)
