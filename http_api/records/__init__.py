"""Handlers of records: append, append by key, fetch, follow; from bodies to batches and back.

In: a `Call`.
Out: offsets of stored batches; records in the form that was asked for.
May import: cluster, cluster.api, cluster.front, http_api.codec, http_api.reading, http_api.request, partition,
partition.api, partition.log, partition.records, partition.state.
"""
