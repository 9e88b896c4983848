"""Spark reads a topic as a data source."""
