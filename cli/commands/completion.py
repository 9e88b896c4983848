"""`stockade completion`: prints a script with which a shell completes commands, options and names."""

import click
from click.shell_completion import get_completion_class

from ..ui.exits import LOCAL
from ..ui.manual import Manual

SHELLS = ("bash", "zsh", "fish")


@click.command(
    cls=Manual,
    short_help="Print a script for completion in a shell.",
    exits=LOCAL,
    examples=[
        ("bash, in this shell (put it into ~/.bashrc to keep it)", 'eval "$(stockade completion bash)"'),
        ("zsh, after compinit", 'eval "$(stockade completion zsh)"'),
        ("fish", "stockade completion fish > ~/.config/fish/completions/stockade.fish"),
    ],
)
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the script that makes SHELL complete `stockade`.

    The shell then completes commands, options, and the names of topics, groups, producers and nodes. It asks the
    cluster of STOCKADE_URL (or of --url in the same line) for names; it completes none if no node answers in 0.5 s.
    """
    from ..main import main  # noqa: PLC0415  # it imports this module

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(main, {}, "stockade", "_STOCKADE_COMPLETE").source())
