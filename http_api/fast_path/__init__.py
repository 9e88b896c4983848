"""The fast path of small, frequent requests (appends, renewals), past aiohttp's parser and tasks.

The fast path decides nothing: it asks the same services as the handlers.

In: bytes of a connection.
Out: bytes of the answer, or the connection handed to aiohttp.
May import: cluster, cluster.access, cluster.api, cluster.front, http_api.codec, http_api.endpoint, http_api.reading,
http_api.records, http_api.request, partition, partition.records.
"""
