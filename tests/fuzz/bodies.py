"""Fuzzes what reads bodies with atheris, as long as asked: ``python tests/fuzz/bodies.py -max_total_time=60``.

The first byte chooses the form of the body. Anything but a batch or a refusal is a bug: atheris stops and writes the
body down, which then becomes a named test.
"""

import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))

with atheris.instrument_imports(include=["stockade"]):
    from stockade.http_api.reading.decode import FORMS, read_batch, read_columns
    from stockade.partition.errors import StockadeError

BATCH_BYTES_MAX = 4096


def read(data: bytes) -> None:
    """One body."""
    if not data:
        return
    form, body = FORMS[data[0] % len(FORMS)], data[1:]
    try:
        batch = read_batch(form, body, now_ms=1, batch_bytes_max=BATCH_BYTES_MAX)
    except StockadeError as refusal:
        assert refusal.status in (400, 413), refusal
        return
    assert batch.count > 0
    assert len(batch.message) <= BATCH_BYTES_MAX
    assert len(read_columns(form, body, now_ms=1, bytes_max=BATCH_BYTES_MAX).values) == batch.count


if __name__ == "__main__":
    atheris.Setup(sys.argv, read)
    atheris.Fuzz()
