"""Calls commands against one real cluster of one node in this process."""

import json
from collections.abc import Callable
from typing import Any

from click.testing import CliRunner, Result

from stockade.cli.main import main
from stockade.testing import Cluster

Call = Callable[..., Result]


class Operator:
    """A user at a command line. Commands that fail fail the test; ``refused`` is for those that shall."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._environment = {"STOCKADE_URL": cluster.url, "STOCKADE_TIMEOUT": "60"}

    def call(self, *arguments: str, stdin: str = "") -> Result:
        return CliRunner().invoke(main, list(arguments), input=stdin, env=self._environment)

    def says(self, *arguments: str, stdin: str = "") -> str:
        done = self.call(*arguments, stdin=stdin)
        assert done.exit_code == 0, done.output
        return done.stdout

    def lines(self, *arguments: str) -> list[list[str]]:
        return [line.split() for line in self.says(*arguments).splitlines()]

    def tells(self, *arguments: str) -> Any:
        """The one JSON document."""
        [line] = self.says(*arguments, "--output", "json").splitlines()
        return json.loads(line)

    def refused(self, *arguments: str) -> tuple[int, dict[str, Any]]:
        """Exit code and problem."""
        done = self.call(*arguments, "--output", "json")
        assert done.stdout == ""
        return done.exit_code, json.loads(done.stderr)
