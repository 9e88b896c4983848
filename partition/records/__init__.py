"""Records and batches as bytes: the Arrow schema, the validation of a batch, the fast encoder, checksums. Pure.

The only door through which bytes become a batch.

In: columns, or an Arrow stream, no byte of which is trusted.
Out: a validated `Batch`.
May import: partition.
"""
