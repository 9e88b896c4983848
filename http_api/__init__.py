"""Floor 4: the HTTP interface. Any node answers; the leader of the partition decides.

`routes.py` lists every route; docs/openapi.yaml is the contract.

In: HTTP requests.
Out: HTTP answers; refusals as problem documents.
May import: cluster, cluster.access, cluster.api, cluster.front, http_api.codec, http_api.endpoint, http_api.fast_path,
http_api.handlers, http_api.reading, http_api.records, http_api.request, partition.
"""
