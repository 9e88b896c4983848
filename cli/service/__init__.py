"""The interface between a node and its service manager: environment variables in, state messages out.

In: environment variables. Out: a configuration, messages to the service manager.
May import: cluster.
"""
