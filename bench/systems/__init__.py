"""The systems that are measured: how each is had, started on three nodes of this machine, and loaded."""
