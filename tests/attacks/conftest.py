"""What the attacks tell of themselves."""

from collections.abc import Callable

import pytest


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Prints a line of figures, which no test judges, past pytest."""

    def say(line: str) -> None:
        with capsys.disabled():
            print(f"\n{line}")  # noqa: T201

    return say
