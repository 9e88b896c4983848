"""`stockade audit …`: shows, verifies and exports the ledger, and answers who could write what.

In: entries of a running cluster's ledger.
Out: tables, JSON lines, an Arrow file that pyarrow alone can verify.
May import: cli.ui, client.api, partition, partition.api, partition.log.
"""
