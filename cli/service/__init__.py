"""What a service manager gives to a node, and what it hears of it.

In: environment variables. Out: a configuration, messages to the service manager.
May import: cluster.
"""
