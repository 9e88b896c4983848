"""What all fronts of a node share: principals, bounds on what is in flight, retries at the leader, counts of writes.

Knows no protocol: `http_api` is one front, another would stand beside it.

In: what a front has decoded.
Out: leave to go on, or a refusal.
May import: cluster, cluster.access, cluster.api, partition, partition.api, partition.records.
"""
