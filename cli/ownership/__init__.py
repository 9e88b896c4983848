"""Commands about who may write: sessions, grants, groups, producers, hold, own, fence.

In: options, and a COMMAND to run. Out: tables, JSON, exit codes; and processes that end when their grant or resource is
lost (`child.py`, `subreaper.py`).
May import: cli.orders, cli.ui, client, client.api, client.session, partition, partition.api.
"""
