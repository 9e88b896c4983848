"""For tests of programs that use Stockade: a real cluster of one node in this process, that can fence on demand.

with stockade.testing.Cluster() as cluster:
    cluster.create_topic("jobs")
    ...                      # start the program under test with cluster.url
    cluster.fence("jobs")    # it is a zombie now: does it notice?
"""

from .cli.embedded import Cluster

__all__ = ["Cluster"]
