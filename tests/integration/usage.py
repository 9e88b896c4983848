"""What every example does with its arguments, whether it needs Spark or not."""

import os
import subprocess
import sys
from pathlib import Path


def check_usage(script: Path) -> None:
    """It explains itself, and refuses wrong arguments without a traceback."""
    paths = {"PYTHONPATH": os.pathsep.join(sys.path)}
    for arguments, code in ((["--help"], 0), ([], 2), (["--nonsense"], 2)):
        command = [sys.executable, str(script), *arguments]
        done = subprocess.run(command, env=os.environ | paths, capture_output=True, text=True, check=False)
        assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
        assert f"usage: {script.name}" in (done.stderr if code else done.stdout)
