"""docs/how-to/spark.md: its program, run twice in one session, as in a notebook."""

import contextlib
import io
from typing import Any

import pytest
from integration.api import Topic
from integration.pages import ROOT, blocks, missing, promised

PAGE = (ROOT / "docs" / "how-to" / "spark.md").read_text(encoding="utf-8")


@pytest.mark.timeout(300)
def test_the_program_loads_each_row_once_and_again_nothing(spark: Any, url: str) -> None:
    [program] = [block.text for block in blocks(PAGE) if block.language == "python" and block.excuse is None]
    assert program.endswith("spark.stop()\n")
    program = program.removesuffix("spark.stop()\n").replace("http://127.0.0.1:7101", url)
    Topic(url, "words").create(partitions=2)
    for _ in range(2):
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(compile(program, "words.py", "exec"), {})
        assert missing(promised(PAGE), output.getvalue()) is None
