"""Judge a chaos history and every replica's log, on any Spark.

spark-submit examples/pipeline_audit.py --html audit.html HISTORY LOGS

stockade must be installed where Spark's Python is; docs/spark.md tells how to hand it to executors.
"""

import sys

from stockade.spark.pipelines.audit.audit import main

if __name__ == "__main__":
    sys.exit(main())
