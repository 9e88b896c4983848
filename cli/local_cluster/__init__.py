"""Clusters on this machine, for development, demonstrations and tests.

`cluster.py` starts one process for each node and supervises them; `embedded.py` runs one node inside this process
(`stockade.testing`); `ports.py` finds free ports. In: a data folder and ports. Out: running nodes and `cluster.json`.

May import: cli.node, cli.service, client, client.api, client.blocking, client.session, cluster, cluster.node, http_api,
partition.log.
"""
