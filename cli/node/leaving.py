"""Ends a node's process even while a disk or a tiered store hangs.

At its exit Python joins the threads that wait for the disk or the store, and pyarrow waits for its requests to S3: for
minutes, or for ever if the server of a shared folder is gone. A service manager starts the node again only when the
process has ended.
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
"""Seconds that idle threads of the store get to end."""
STALLED_S = 2.0
"""Seconds that a node whose disk hangs gets to close its client connections: all other steps of its stop may hang, too.
"""

_log = logging.getLogger(__name__)


@contextmanager
def leaving() -> Iterator[None]:
    """Inside the block an exception ends the process. If threads still wait for the tiered store at that time, the
    process exits at once, without joining them, with the same exit code and the same message.
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
    """End the process with exit code 1 after STALLED_S, even if threads wait for the disk. No log line is lost: each is
    written at once.
    """
    timer = Timer(STALLED_S, os._exit, (1,))
    timer.daemon = True
    timer.start()
