"""The sink: rows are staged by tasks, decided by the driver in one record, and moved into the log after that."""
