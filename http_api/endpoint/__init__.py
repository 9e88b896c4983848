"""From a route to its answer: common checks, the handler, retry at the leader, forwarding to another node.

In: a routed request.
Out: its answer, from this node or from the leader.
May import: cluster.front, http_api.codec, http_api.request, partition.
"""
