"""The findings of `stockade doctor`, one for each check."""

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "warning", "wrong"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check, and what to do if it is not ok."""

    about: str
    verdict: Verdict
    found: str
    advice: str = ""
