"""What Spark and the pipelines refuse, in one line for people."""

from pyspark.errors import PySparkException

from .export import ExportRefused

REFUSALS = (PySparkException, ExportRefused)
_TELLING = ("Error", "Refused", "DataLost")


def why(error: Exception) -> str:
    """The line that says most: that of the last Python exception in it, or else the first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if line.split(":")[0].split(".")[-1].endswith(_TELLING)]
    return told[-1] if told else next(iter(lines), "Spark does not say why")
