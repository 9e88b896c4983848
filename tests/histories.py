"""Reads the history files that a run of chaos or a demo writes."""

from pathlib import Path

import msgspec

from stockade.chaos.history.history import Event


def read_history(path: Path) -> list[Event]:
    """The events of a history file. Raises msgspec.DecodeError (a ValueError) on a line that is none."""
    decoder = msgspec.json.Decoder(Event)
    with path.open("rb") as lines:
        return [decoder.decode(line) for line in lines]
