"""Found by Spark because of its name: with it, ``spark.read.format("stockade")`` needs no registration."""

from stockade.spark.data_source import StockadeSource as DefaultSource

__all__ = ["DefaultSource"]
