"""The steps of a build that pyproject.toml cannot express: the commit is written into each distribution, and a source
distribution is laid out as the repository, with every folder at the root and a link to it in src/stockade.
"""

import runpy
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

ROOT = Path(__file__).resolve().parent
LINKS = [path for path in sorted((ROOT / "src" / "stockade").iterdir()) if path.is_symlink()]
COMMIT = "COMMIT"


def commit() -> str:
    """The commit of the checkout, or the one that is written in a source distribution."""
    told: str = runpy.run_path(str(ROOT / "cluster" / "build.py"))["commit"]()
    return told


class BuildPy(build_py):
    """Writes the commit into the package, unless it is installed as editable."""

    def run(self) -> None:
        """Build the modules, and write the commit beside them."""
        super().run()
        if not self.editable_mode:
            path = Path(self.build_lib, "stockade", COMMIT)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(commit() + "\n", encoding="utf-8")

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """The files that ``run`` writes, the one with the commit included."""
        written = [] if self.editable_mode else [str(Path(self.build_lib, "stockade", COMMIT))]
        return [*super().get_outputs(include_bytecode), *written]


class Sdist(sdist):
    """A source distribution with the links of src/stockade, which setuptools follows: every folder would lie in src."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """Copy the files, write the commit, and move each folder from src/stockade to the root; a link stays there."""
        super().make_release_tree(base_dir, files)
        base = Path(base_dir)
        (base / COMMIT).write_text(commit() + "\n", encoding="utf-8")
        for link in LINKS:
            copied = base / "src" / "stockade" / link.name
            copied.rename(base / link.name)
            copied.symlink_to(link.readlink())


setup(cmdclass={"build_py": BuildPy, "sdist": Sdist})
