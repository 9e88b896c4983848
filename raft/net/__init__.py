"""Connections between nodes: frames, TLS, handshake, liveness, calls with an answer.

In: messages for a node.
Out: messages from a node, and which nodes are reachable.
May import: partition.log, raft.
"""
