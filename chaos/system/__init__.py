"""The means to break something on this machine, and to undo it: one file for each thing.

Processes (`nodes.py`), network namespaces (`hosts.py`), toxiproxy (`proxies.py`), disks in files (`disks.py`), control
groups (`cgroups.py`); `undo.py` undoes what was broken even if this process is killed.

May import: client.api, client.transport, partition, partition.api.
"""
