"""Who may write where: acquire in all modes, grants, the wait queue, resources, fence installs. Pure.

In: decoded commands and the controller's state.
Out: changed state, and the fence installs that a change owes to partitions.
May import: cluster, cluster.access, cluster.controller, cluster.controller.topology, partition, partition.api.
"""
