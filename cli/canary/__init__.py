"""`stockade canary`: proves again and again, on a running cluster, that a writer that was replaced is refused.

In: a cluster over its client. Out: verdicts, and figures for a monitor.
May import: cli.ui, client, client.api, client.consumer, http_api.request, partition, partition.api, partition.records.
"""
