"""Plans of orders that cannot be undone, and the operator's consent to them: fence, trim, delete, remove, drain.

In: an operator's order, and a client. Out: a plan of what the order would change, with a digest of the state that it
rests on; the order is carried out only in that state.
May import: cli.ui, client.api, partition, partition.api.
"""
