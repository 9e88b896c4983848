"""Processes that tests start."""

import signal
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


@contextmanager
def hearing_ctrl_c() -> Iterator[None]:
    """Processes that are started meanwhile hear SIGINT: a shell that starts the tests in the background has it ignored,
    and so would they.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
