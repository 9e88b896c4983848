"""What commands share: connection options, parameters that complete themselves, help texts, output, exit codes.

In: what a command wants to show or ask. Out: text on the terminal, JSON, files, exit codes. Imports nothing of cli;
knows no single command.
May import: client, client.api, client.blocking, client.consumer, partition, partition.api, partition.log.
"""
