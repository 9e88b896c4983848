"""The machine of a run: processor, kernel, file system, and how long its disk takes to sync."""

import os
import platform
import re
import subprocess
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from figures import Quartiles, quartiles
from page import Machine

SYNCS = 200
SYNC_BYTES = 4096


def described() -> Machine:
    """This machine, now. The second of its ``loads`` is put in when the run has ended."""
    found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    busy = os.getloadavg()[0]
    return Machine(
        when=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        processor=found.group(1) if found else platform.machine(),
        cores=os.cpu_count() or 1,
        memory_gib=pages / 2**30,
        kernel=platform.release(),
        python=platform.python_version(),
        file_system=_file_system(),
        sync_ms=sync_ms(),
        loads=(busy, busy),
    )


def sync_ms() -> Quartiles:
    """Quartiles, in ms, of an append of 4 KiB and its fdatasync, on the file system of the systems' data."""
    took = []
    with tempfile.TemporaryFile() as file:
        for _ in range(SYNCS):
            began = time.perf_counter()
            file.write(b"x" * SYNC_BYTES)
            file.flush()
            os.fdatasync(file.fileno())
            took.append((time.perf_counter() - began) * 1e3)
    return quartiles(took)


def _file_system() -> str:
    command = ["df", "--output=fstype", tempfile.gettempdir()]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1]  # noqa: S603
