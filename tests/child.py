"""Processes that tests start."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import AnyStr


@contextmanager
def ended(process: subprocess.Popen[AnyStr]) -> Iterator[subprocess.Popen[AnyStr]]:
    """The process, for a block at whose end it ends, or is killed if the block fails: Popen would wait for it for ever,
    and the time limit of a test ends no more than the first wait.
    """
    with process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise
