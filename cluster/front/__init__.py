"""What all fronts of a node share: rights, bounds on what is in flight, retries at the leader, counts of writes.

Knows no protocol: `http_api` is one front, another would stand beside it.

In: what a front has decoded.
Out: leave to go on, or a refusal.
May import: cluster, partition, partition.api, partition.records.
"""
