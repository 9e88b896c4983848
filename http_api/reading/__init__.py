"""Large bodies are read in processes beside the node, so that no body holds the event loop that Raft runs on.

`work.py` says what can be asked, and does it; `process.py` is the process that does it; `reader.py` asks.

In: bodies.
Out: batches and structs, or refusals.
May import: http_api.codec, partition, partition.records.
"""
