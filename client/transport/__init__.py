"""HTTP to the nodes: attempts, retries, which nodes there are, who leads each partition, leaders that stand still.

The only package of the client that imports aiohttp.

In: requests.
Out: answers, decoded.
May import: client, partition, partition.api.
"""
