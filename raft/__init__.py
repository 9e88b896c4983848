"""Floor 2: consensus. Raft groups that share one write-ahead log, one connection to each other node and one event loop.

`host.py` makes and runs a node's groups; `machine.py` is what a state machine has to offer.

In: commands as bytes, and the machines that apply them.
Out: outcomes: committed with the machine's answer, rejected, or unknown.
May import: partition.log, raft.checkpoint, raft.core, raft.log, raft.net, raft.wal.
"""
