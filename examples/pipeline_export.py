"""Write a topic into files, exactly once, on any Spark.

spark-submit examples/pipeline_export.py --url http://127.0.0.1:7101 TOPIC FOLDER

stockade must be installed where Spark's Python is; docs/spark.md tells how to hand it to executors.
"""

import sys

from stockade.spark.pipelines.export import main

if __name__ == "__main__":
    sys.exit(main())
