"""Handlers of everything but records: topics, cluster, grants, groups, producers, stages, lists, pages.

In: a `Call`.
Out: an answer in the contract's shape.
May import: cluster, cluster.controller.ownership, cluster.front, http_api.codec, http_api.records, http_api.request,
partition, partition.api.
"""
