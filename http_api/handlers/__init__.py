"""Handlers of everything but records, a file for each part of the API; `system.py` and `console.py` serve pages.

In: a `Call`.
Out: an answer in the contract's shape.
May import: cluster, cluster.access, cluster.api, cluster.controller.ownership, cluster.front, cluster.leader,
http_api.codec, http_api.records, http_api.request, partition, partition.api, partition.log, partition.records.
"""
