"""What a front (HTTP today) may ask of a node, as protocols.

Every method raises subclasses of StockadeError only. A method that needs a leader raises NotLeaderOrFollower (with the
leader's base URL when known) where this node does not lead: the front then forwards the request to the leader, once.

In: a front's requests.
Out: answers and refusals.
May import: cluster, cluster.access, partition, partition.api, partition.log, partition.records, partition.state.
"""
