"""What an order that cannot be undone would hit, and the consent to it: fence, trim, delete, remove, drain.

In: what an operator orders, and a client. Out: a plan with a digest of the state that it rests on; the order is carried
out only under it.
May import: cli.ui, client.api, partition, partition.api.
"""
