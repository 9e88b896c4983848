"""The command `stockade`: the top of the house, which may import every other folder.

In: command lines, environment variables, files. Out: text or JSON, exit codes, processes of nodes. `main.py` imports a
subcommand when it is called. Commands live in `commands` (data and cluster), `ownership` (who may write), `node` (one
node's machine; `service`: its service manager), `backup`, `audit`, `canary` and `chaos_commands`. They share `ui`,
`orders` (plans and consent) and `local_cluster` (clusters of this machine).
May import: cli.ui, cluster, partition.
"""
