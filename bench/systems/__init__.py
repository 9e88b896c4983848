"""The systems that are measured: how each is installed, started on three nodes of this machine, and loaded."""
