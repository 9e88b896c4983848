"""Large bodies are parsed in processes beside the node, so that no body blocks the event loop that Raft runs on.

`work.py` defines the orders and carries them out; `process.py` is the process that does so; `reader.py` sends them.

In: bodies.
Out: batches and structs, or refusals.
May import: http_api.codec, partition, partition.records.
"""
