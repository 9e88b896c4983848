"""The end of a node's process, which comes also while a disk or a tiered store hangs.

Python would wait for the threads that wait for them, and pyarrow for its requests to S3: for minutes, or for ever if
the server of a shared folder is gone. A service manager starts the node again only when the process has ended.
"""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer

import click

from ...cluster.tiered.threads import are_at_work

WAIT_S = 1.0
"""Time for threads that have nothing to do any more."""
STALLED_S = 2.0
"""Time for a node whose disk hangs to close the connections of its clients. Nothing else of its end can be waited for.
"""

_log = logging.getLogger(__name__)


@contextmanager
def leaving() -> Iterator[None]:
    """What is within ends the process by an exception. If threads still wait for the store then, the process ends at
    once, with the same exit code and the same last words.
    """
    try:
        yield
    except BaseException as error:
        if not are_at_work(WAIT_S):
            raise
        code: object = 1
        if isinstance(error, click.ClickException):
            error.show()
        elif isinstance(error, SystemExit):
            code = error.code
        else:
            _log.critical("the node stopped because of a bug", exc_info=error)
        _log.warning("the tiered store has not answered yet; the process ends without that")
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code if isinstance(code, int) else int(code is not None))


def end_stalled() -> None:
    """End the process in STALLED_S with exit code 1, whatever waits for the disk then. Log lines are out already."""
    timer = Timer(STALLED_S, os._exit, (1,))
    timer.daemon = True
    timer.start()
