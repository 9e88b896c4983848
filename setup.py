"""What pyproject.toml cannot say: the commit goes into each distribution, and a source distribution has every folder
where the repository has it, with the links of src/stockade beside them.
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
    """Of the checkout, or as a source distribution says."""
    told: str = runpy.run_path(str(ROOT / "cluster" / "build.py"))["commit"]()
    return told


class BuildPy(build_py):
    """Writes the commit into the package."""

    def run(self) -> None:
        """As setuptools wants it."""
        super().run()
        if not self.editable_mode:
            path = Path(self.build_lib, "stockade", COMMIT)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(commit() + "\n", encoding="utf-8")

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """As setuptools wants it."""
        written = [] if self.editable_mode else [str(Path(self.build_lib, "stockade", COMMIT))]
        return [*super().get_outputs(include_bytecode), *written]


class Sdist(sdist):
    """setuptools follows the links, and so would leave no folder but src."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """As setuptools wants it."""
        super().make_release_tree(base_dir, files)
        base = Path(base_dir)
        (base / COMMIT).write_text(commit() + "\n", encoding="utf-8")
        for link in LINKS:
            copied = base / "src" / "stockade" / link.name
            copied.rename(base / link.name)
            copied.symlink_to(link.readlink())


setup(cmdclass={"build_py": BuildPy, "sdist": Sdist})
