"""The Python client: producer, consumer and exclusive work as context managers."""
