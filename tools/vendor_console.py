"""Make the libraries of the console: http_api/assets/console/vendor, from what npm has under the locked versions.

Run as ``python tools/vendor_console.py`` after a change of tools/vendor/package.json; ``--check`` writes nothing and
fails when a file is not byte for byte what it would write. It needs node and npm; a node of Stockade needs neither,
since the files are in the repository and in the wheel.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "tools" / "vendor"
VENDOR = ROOT / "http_api" / "assets" / "console" / "vendor"
COPIES = {
    "uplot.css": "uplot/dist/uPlot.min.css",
    "inter.woff2": "@fontsource-variable/inter/files/inter-latin-wght-normal.woff2",
    "preact.LICENSE": "preact/LICENSE",
    "htm.LICENSE": "htm/LICENSE",
    "uplot.LICENSE": "uplot/LICENSE",
    "inter.LICENSE": "@fontsource-variable/inter/LICENSE",
    "noble-hashes.LICENSE": "@noble/hashes/LICENSE",
}
"""The files that are copied as they are: by their name here, their path in node_modules."""
BUNDLES = ("preact.js", "uplot.js", "noble-hashes.js")
"""The files that esbuild bundles from the entries in tools/vendor."""
OPTIONS = ("--bundle", "--minify", "--format=esm", "--target=es2022", "--legal-comments=inline", "--log-level=error")


def build(into: Path) -> None:
    """Write every file of the vendor folder. Raises CalledProcessError, OSError."""
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        for path in SOURCES.iterdir():
            if path.is_file():
                shutil.copy(path, work)
        npm = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        subprocess.run(npm, cwd=work, check=True)
        for bundle in BUNDLES:
            esbuild = work / "node_modules" / ".bin" / "esbuild"
            subprocess.run([esbuild, bundle, *OPTIONS, f"--outfile={into / bundle}"], cwd=work, check=True)
        for target, source in COPIES.items():
            shutil.copyfile(work / "node_modules" / source, into / target)


def differences(made: Path, kept: Path) -> list[str]:
    """Names of the files that are not the same in both folders."""
    names = {path.name for folder in (made, kept) for path in folder.iterdir()}
    contents = {
        name: [(f / name).read_bytes() if (f / name).exists() else None for f in (made, kept)] for name in names
    }
    return sorted(name for name, (here, there) in contents.items() if here != there)


def main(arguments: Sequence[str]) -> int:
    """Write the files, or with ``--check`` compare them; returns the exit code."""
    with tempfile.TemporaryDirectory() as name:
        made = Path(name)
        build(made)
        changed = differences(made, VENDOR)
        if "--check" not in arguments:
            for file in changed:
                if (made / file).exists():
                    shutil.copyfile(made / file, VENDOR / file)
                else:
                    (VENDOR / file).unlink()
            print(f"written: {', '.join(changed) or 'nothing, all is as it was'}")
            return 0
    if changed:
        print(f"not what tools/vendor_console.py makes: {', '.join(changed)}")
    return len(changed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
