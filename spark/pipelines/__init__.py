"""Jobs made of the data source: load, export, audit. Each is a function, a command, and a script for spark-submit.

They need pyspark and pyarrow, nothing else, so that they run where only these are installed.
"""
