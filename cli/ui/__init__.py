"""Shared by all commands: connection options, parameters with completion, help texts, output, exit codes.

In: facts that a command shows, and questions that it asks. Out: text on the terminal, JSON, files, exit codes. The
folder imports no other folder of cli, and knows no single command.
May import: client, client.api, client.blocking, client.consumer, partition, partition.api, partition.log.
"""
