"""The plan by which a cluster comes into balance: a pure function of the facts about nodes and partitions.

In: facts: placements of the catalog, disks, leaders and followers as nodes report them.
Out: a plan: replicas that go to other nodes, an order of replicas that changes, leaders that go home.
May import: nothing of the house.
"""
