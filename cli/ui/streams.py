"""The standard streams of the process: closed ones are opened, and a standard output that takes no bytes is known."""

import io
import os
import sys
from pathlib import Path


def open_closed_streams() -> None:
    """Open /dev/null where the caller has closed descriptor 0, 1 or 2: otherwise the next socket has that number, gets
    what is printed, and the event loop ends the process when it is to close it.
    """
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free, which is this one
            os.set_inheritable(descriptor, True)
            setattr(sys, name, os.fdopen(descriptor, "w" if descriptor else "r", encoding="utf-8"))


def output_fault() -> OSError | None:
    """Why standard output takes no bytes (its disk is full, say), or has not taken what was printed; None: nothing says
    that it would take none.
    """
    try:
        sys.stdout.flush()  # what was not taken is in its buffer still
        os.write(sys.stdout.fileno(), b"")  # a device that is full refuses that, too
    except io.UnsupportedOperation:
        return None
    except OSError as error:
        return error
    return None


def is_output_null() -> bool:
    """Whether standard output is /dev/null: the caller wants to see nothing, or has closed it."""
    try:
        return os.path.samestat(os.fstat(sys.stdout.fileno()), Path(os.devnull).stat())
    except io.UnsupportedOperation:
        return False
