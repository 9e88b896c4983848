"""A network of our own on one machine: every node in a namespace, all of them on a bridge."""
