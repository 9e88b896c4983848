"""Sessions and what they hold: grants and named resources, until they are released or lost.

In: what to hold, and for how long without a sign of life.
Out: fencing tokens; a notice when they are lost.
May import: client, client.api, client.transport, partition, partition.api.
"""
