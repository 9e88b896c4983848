"""The arguments by which a pipeline that runs as a script reaches its cluster. Needs no library."""

import argparse


def add_options(parser: argparse.ArgumentParser, side: str) -> None:
    """Add ``--url`` and ``--option``; ``side``: whether these are options of the source or of the sink."""
    parser.add_argument("--url", required=True, help="base URL of a node, or several separated by commas")
    parser.add_argument(
        "--option", action="append", default=[], type=_pair, metavar="NAME=VALUE", help=f"an option of the {side}"
    )


def options_of(given: argparse.Namespace) -> dict[str, str]:
    """The options by name, ``url`` included."""
    return {"url": given.url, **dict(given.option)}


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"must be NAME=VALUE, not {text!r}")
    return name, value
