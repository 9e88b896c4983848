"""Writes ``stockade.zip``, which has the data source alone, for drivers and executors without Stockade.

Give it to ``spark-submit --py-files`` or ``spark.submit.pyFiles``. It needs pyspark and pyarrow, no other library, and
has no code of the server.
"""

import argparse
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

FOLDERS = ("partition", "client", "spark")
"""Folders of stockade that the data source imports, directly or not."""
_EPOCH = (1980, 1, 1, 0, 0, 0)


def write_zip(target: Path) -> None:
    """Write the zip file to ``target``, atomically. The same sources give the same bytes."""
    scratch = target.with_name(f"{target.name}.new")
    with zipfile.ZipFile(scratch, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in sorted(_files()):
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), path.read_bytes(), zipfile.ZIP_DEFLATED)
    os.replace(scratch, target)  # noqa: PTH105


def _files() -> Iterator[tuple[str, Path]]:
    """The name in the zip and the source file of each module."""
    package = Path(__file__).parent.parent
    root = package.parent
    folders = [package / name for name in FOLDERS]
    for path in [*package.glob("*.py"), *(path for folder in folders for path in folder.rglob("*.py"))]:
        yield path.relative_to(root).as_posix(), path
    for path in (root / "pyspark_stockade").rglob("*.py"):
        yield path.relative_to(root).as_posix(), path


def main() -> None:
    """``python -m stockade.spark.package [FILE]``."""
    parser = argparse.ArgumentParser(prog="python -m stockade.spark.package", description=__doc__)
    parser.add_argument("file", nargs="?", type=Path, default=Path("stockade.zip"))
    write_zip(parser.parse_args().file)


if __name__ == "__main__":
    main()
