"""Spark in processes of its own, which are made to know nothing but what a test gives them."""

import os
import subprocess
import sys
import venv
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sources import ROOT

LIBRARIES = ("pyspark", "py4j", "pyarrow")
"""All that Spark's drivers and executors need for Stockade."""

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""What makes a JVM start quickly that does not live long."""


def bare_python(folder: Path) -> Path:
    """A Python that has LIBRARIES and nothing else."""
    venv.create(folder, symlinks=True)
    packages = next(folder.glob("lib/python*/site-packages"))
    for name in LIBRARIES:
        found = find_spec(name)
        assert found is not None
        assert found.origin is not None
        (packages / name).symlink_to(Path(found.origin).parent)
    return folder / "bin" / "python"


def spark_home(folder: Path) -> str:
    """Spark under another name: a local cluster's executors work in a folder ``work`` of SPARK_HOME."""
    found = find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    folder.mkdir()
    for each in Path(found.origin).parent.iterdir():
        if each.name != "work":
            (folder / each.name).symlink_to(each)
    return str(folder)


def environment(python: Path | str = sys.executable, **more: str) -> dict[str, str]:
    """For a process that starts Spark. Its workers are this Python; PYTHONPATH is empty unless it is given."""
    made = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK", "SPARK"))}
    if (home := ROOT / ".tools" / "java").exists():
        made["JAVA_HOME"] = str(home)
    made |= {"PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1", "JAVA_TOOL_OPTIONS": SHORT_LIVED}
    return made | more


def submit(*words: Any, env: dict[str, str], timeout_s: float = 600) -> str:
    """Run ``spark-submit``, quietly; what it printed."""
    found = find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    quiet = ["--conf", "spark.ui.enabled=false", "--conf", "spark.log.level=ERROR"]
    command = [Path(found.origin).parent / "bin" / "spark-submit", *quiet, *words]
    done = subprocess.run(
        [str(word) for word in command], env=env, capture_output=True, text=True, timeout=timeout_s, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
