"""`stockade pipeline audit`: judges histories and replica logs of any size with Spark.

In: `history.parquet` and `logs.parquet` of a chaos run. Out: violations by checker, counts, one HTML page. Checkers are
in `*_checks.py`; `rehearsal.py` makes up a run and `planted.py` plants every fault in it, to test them.
May import: spark.pipelines.
"""
