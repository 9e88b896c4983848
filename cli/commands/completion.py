"""`stockade completion`: scripts that let a shell complete commands, options, and names of a running cluster."""

import click
from click.shell_completion import get_completion_class

from .exits import LOCAL
from .manual import Manual

SHELLS = ("bash", "zsh", "fish")


@click.command(
    cls=Manual,
    short_help="Let a shell complete commands and names.",
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

    It completes commands, options, and the names of topics, groups, producers and nodes that the cluster of
    STOCKADE_URL (or of --url in the same line) knows; when no node answers within half a second, it completes none.
    """
    from .main import main  # noqa: PLC0415  # it imports this module

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(main, {}, "stockade", "_STOCKADE_COMPLETE").source())
