"""The HTTP interface: any node answers, the leader of the partition decides."""
