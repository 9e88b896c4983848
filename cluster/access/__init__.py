"""The caller of a request, and its rights: principals, their credentials, their rights on names. `store.py` keeps
principals on disk, and `issuers.py` reads keys of issuers; the rest are pure decisions.

In: the principals of a cluster; a request's Authorization header and client certificate.
Out: a caller, by whose rights requests are decided, or a refusal that names the missing right.
May import: cluster, partition, partition.log, raft, raft.wal.
"""
