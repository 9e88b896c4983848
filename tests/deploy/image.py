"""The Dockerfile, tried where there is no engine: its own RUN lines run in order, in a folder in place of the root."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from sources import ROOT

DOCKERFILE = ROOT / "Dockerfile"
NOBODY = 65534


def instructions() -> list[tuple[str, str]]:
    """Name and text of each instruction of the Dockerfile, with its continued lines in one."""
    lines = [line for line in DOCKERFILE.read_text(encoding="utf-8").splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    found = [line.partition(" ") for line in joined.splitlines() if line]
    return [(name, text.strip()) for name, _, text in found]


def variables() -> dict[str, str]:
    """What ENV sets in the image."""
    texts = [text for name, text in instructions() if name == "ENV"]
    return dict(part.split("=", 1) for text in texts for part in text.split())


def words(name: str) -> list[str]:
    """The words of ENTRYPOINT, CMD, or of the command of HEALTHCHECK."""
    (text,) = (text for each, text in instructions() if each == name)
    found: list[str] = json.loads(text[text.index("[") :])
    return found


@cache
def unprivileged() -> list[str]:
    """Words before a command, to run it as a user without rights; none if we are no superuser. It may read what we may,
    since our Python may lie where only we look; it may write what belongs to it alone.
    """
    if os.geteuid() != 0:
        return []
    who = [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--no-new-privs"]
    rights = [f"--{kind}=-all,+dac_read_search" for kind in ("bounding-set", "inh-caps", "ambient-caps")]
    return ["setpriv", *who, *rights]


class Image:
    """The files that an image has, below ``root``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.said = ""

    def build(self, source: Path) -> None:
        """Run what the first stage runs. The environment of these tests, made of the same lock as the stage's tools,
        stands in for them.
        """
        commit = subprocess.check_output(["git", "-C", source, "rev-parse", "HEAD"], text=True).strip()
        time = subprocess.check_output(["git", "-C", source, "log", "-1", "--format=%ct"], text=True).strip()
        # What .dockerignore leaves out.
        subprocess.run(["rm", "-rf", source / ".git", source / "tests"], check=True)
        for command in self.commands():
            done = subprocess.run(
                ["sh", "-euc", command],
                cwd=source,
                env={**os.environ, "COMMIT": commit, "SOURCE_DATE_EPOCH": time},
                umask=0o022,
                check=False,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            self.said += done.stdout
            assert done.returncode == 0, f"{command}\n{done.stdout}"

    def commands(self) -> list[str]:
        """The RUN lines of the first stage, with folders of ours."""
        stages = [number for number, (name, _) in enumerate(instructions()) if name == "FROM"]
        runs = [text for name, text in instructions()[stages[0] : stages[1]] if name == "RUN"]
        own = [text for text in runs if "dist.txt" not in text]
        assert len(own) == len(runs) - 1
        ours = {"/opt/build/bin/python": sys.executable, "/opt/stockade": f"{self.root}/opt/stockade"}
        for there, here in (
            *ours.items(),
            ("/src/", f"{self.root}/src/"),
            ("python -m venv", f"{sys.executable} -m venv"),
        ):
            own = [text.replace(there, here) for text in own]
        return own

    @property
    def wheel(self) -> Path:
        (found,) = (self.root / "src" / "wheel").glob("*.whl")
        return found

    def environ(self, given: Mapping[str, str]) -> dict[str, str]:
        """The environment of a container with these variables; nothing else of ours."""
        inside = variables()
        inside["PATH"] = inside["PATH"].replace("/opt/", f"{self.root}/opt/").replace("$PATH", os.defpath)
        return {**inside, "HOME": "/nonexistent", **given}

    def start(self, given: Mapping[str, str], log: Path) -> "subprocess.Popen[bytes]":
        """Start what the image starts, as a user without rights if we may."""
        command = [*words("ENTRYPOINT"), *words("CMD")]
        with log.open("ab") as file:
            return subprocess.Popen(
                [*unprivileged(), self.program(command[0]), *command[1:]],
                env=self.environ(given),
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )

    def is_healthy(self, given: Mapping[str, str]) -> bool:
        """What the engine would find by the HEALTHCHECK."""
        command = words("HEALTHCHECK")
        asked = [self.program(command[0]), *command[1:]]
        return subprocess.run(asked, env=self.environ(given), cwd="/", check=False, capture_output=True).returncode == 0

    def program(self, name: str) -> str:
        return str(self.root / "opt" / "stockade" / "bin" / name)
