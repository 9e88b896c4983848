"""Typed calls to the cluster, one method for each route of the contract.

In: arguments with units in their names.
Out: typed answers, or the refusal as its class.
May import: client, client.transport, partition, partition.api, partition.records.
"""
