"""For tests of programs that use Stockade: a real cluster of one node in this process, with faults on demand.

with stockade.testing.Cluster() as cluster:
    cluster.create_topic("jobs")
    ...                      # start the program under test with cluster.url
    cluster.fence("jobs")    # another writer has taken over: does the program notice?
"""

from .cli.local_cluster.embedded import Cluster

__all__ = ["Cluster"]
