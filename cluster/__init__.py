"""One node and what the nodes decide together: topics, placement, sessions, grants, producers."""
