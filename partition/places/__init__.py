"""Places for files beyond a node's own disk: a folder, or an object store.

No clock and no randomness; files are its purpose.

In: the URL of a place, paths in it, bytes.
Out: those bytes, and the names and sizes of files.
May import: partition.log.
"""
