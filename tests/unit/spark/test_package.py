"""What is in ``stockade.zip``."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pyarrow as pa

from stockade.spark.package import write_zip

WITHOUT_SPARK = "stockade.spark.sink.committer", "stockade.spark.sink.staging", "stockade.spark.source.rows.fetch"


def test_the_same_sources_make_the_same_file_and_nothing_of_the_server_is_in_it(tmp_path: Path) -> None:
    for name in ("a.zip", "b.zip"):
        write_zip(tmp_path / name)
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    names = zipfile.ZipFile(tmp_path / "a.zip").namelist()
    assert {"pyspark_stockade/__init__.py", "stockade/__init__.py", "stockade/spark/data_source.py"} <= set(names)
    assert {name.split("/")[1] for name in names if name.count("/") > 1} == {"partition", "client", "spark"}


def test_the_modules_without_spark_need_no_library_but_pyarrow(tmp_path: Path) -> None:
    """-S leaves out everything that is installed; pyarrow is put back by hand."""
    write_zip(tmp_path / "stockade.zip")
    (tmp_path / "only").mkdir()
    (tmp_path / "only" / "pyarrow").symlink_to(Path(pa.__file__).parent)
    modules = ", ".join(WITHOUT_SPARK)
    paths = [str(tmp_path / "stockade.zip"), str(tmp_path / "only")]
    program = f"import sys; sys.path += {paths!r}; import {modules}"
    subprocess.run([sys.executable, "-I", "-S", "-c", program], check=True, timeout=100)
