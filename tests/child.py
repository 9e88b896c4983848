"""Processes that tests start."""

import subprocess
from types import TracebackType
from typing import AnyStr


class Child(subprocess.Popen[AnyStr]):
    """A process that is killed when the block that it was started for fails: Popen would wait for its end for ever, and
    the time limit of a test ends no more than the first wait.
    """

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            self.kill()
        super().__exit__(kind, value, traceback)
