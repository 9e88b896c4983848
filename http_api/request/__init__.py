"""One request in flight: what handlers see of it, its body, the application's context, other nodes, metrics.

In: a request of aiohttp, or of the fast path.
Out: a `Call` for a handler.
May import: client.transport, cluster, cluster.access, cluster.api, cluster.front, http_api.codec, http_api.reading,
partition, partition.api, raft, raft.core.
"""
