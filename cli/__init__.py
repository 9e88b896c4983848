"""The command `stockade`: the top of the house, which may import every other folder.

In: command lines, environment variables, files. Out: text or JSON, exit codes, processes of nodes. `main.py` imports a
subcommand when it is called. Commands live in `commands` (data and cluster), `ownership` (who may write), `node` (one
node's machine; `service`: what its service manager gives and hears) and `chaos_commands`; what they share in `ui`,
clusters of this machine in `local_cluster`.
May import: cli.ui, cluster, partition.
"""
