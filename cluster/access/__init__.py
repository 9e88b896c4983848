"""Who makes a request, and what it may do: principals, their credentials, their rights on names. Pure decisions.

In: the principals of a cluster; a request's Authorization header and client certificate.
Out: a caller, whose rights a request is decided by, or a refusal that names the right that is missing.
May import: cluster, partition, partition.api, partition.log, raft.net, raft.wal.
"""
