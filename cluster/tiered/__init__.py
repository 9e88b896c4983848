"""The store beyond the nodes' own disks: objects in it, their cache, and one log of what is there and what is here.

In: segments to be kept there, reads of records that are not on this disk any more.
Out: segments again; refusals when the store is away.
May import: partition, partition.log, partition.places, partition.records, partition.state.
"""
