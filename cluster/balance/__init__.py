"""What a cluster would do to be in balance: a pure function from what is known of nodes and partitions to a plan.

In: facts: placements of the catalog, disks, leaders and followers as nodes report them.
Out: a plan: replicas that go to other nodes, an order of replicas that changes, leaders that go home.
May import: nothing of the house.
"""
