"""Records and batches as bytes: the Arrow schema, what a batch must satisfy, the fast encoder, checksums. Pure.

The only door through which bytes become a batch.

In: columns, or an Arrow stream that is trusted in nothing.
Out: a validated `Batch`.
May import: partition.
"""
