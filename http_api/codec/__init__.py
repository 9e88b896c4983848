"""The forms of HTTP messages: JSON, media types, parameters, schemas, problem documents.

The code here knows neither the cluster nor a connection.

In: bytes, headers, queries.
Out: checked values, and the bytes of answers.
May import: cluster, cluster.access, cluster.controller, cluster.controller.topology, partition, partition.api,
partition.places.
"""
