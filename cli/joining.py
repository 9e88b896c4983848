"""How a node that has nothing yet becomes a member of a running cluster: it announces itself to a node of it."""

import asyncio
import logging
from pathlib import Path

from msgspec import structs

from ..client.admin import Client
from ..client.config import ClientConfig
from ..client.model import Cluster
from ..cluster.book import is_member
from ..cluster.config import ConfigError, NodeConfig
from ..cluster.sections import Member
from ..partition.errors import StockadeError

ASK_AGAIN_S = 1.0
"""Before a node is asked again when none answered."""

_log = logging.getLogger(__name__)


async def joined(config: NodeConfig) -> NodeConfig:
    """The configuration with all members of the cluster that this node joins; as it is when it does not join, or has
    joined. Asks until it is answered. Raises ConfigError for another cluster.
    """
    if not config.join or is_member(Path(config.data_dir)):
        return config
    cluster = await _announce(config)
    if cluster.cluster_id != config.cluster_id:
        raise ConfigError([f"cluster_id: {', '.join(config.join)} belongs to the cluster {cluster.cluster_id}"])
    others = [
        Member(node.node_id, node.url, node.raft_address, node.zone)
        for node in cluster.nodes
        if node.node_id != config.node_id and node.raft_address is not None
    ]
    return structs.replace(config, members=[config.me, *others])


async def _announce(config: NodeConfig) -> Cluster:
    me = config.me
    while True:
        async with Client(ClientConfig.of(config.join)) as client:
            try:
                cluster = await client.connect()
                if cluster.cluster_id == config.cluster_id:
                    cluster = await client.add_node(me.node_id, me.url, me.raft, me.zone)
            except StockadeError as error:
                _log.warning("waiting to join through %s: %s", ", ".join(config.join), error.detail)
            else:
                return cluster
        await asyncio.sleep(ASK_AGAIN_S)
