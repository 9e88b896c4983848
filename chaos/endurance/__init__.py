"""A cluster that runs for hours or days: what its nodes use, sampled, and whether that grows.

`samples.py` reads /proc and /metrics, `steady.py` is a load that never ends, `trends.py` fits lines and judges.
In: nodes that run. Out: samples, trends.
May import: client, client.api, client.consumer, client.producer, partition.
"""
