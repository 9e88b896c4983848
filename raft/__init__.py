"""Consensus: hardened Raft groups that share one log, one transport and one event loop per node."""
