"""`python -m stockade`: the same as the `stockade` command."""

from .cli.main import main

main(prog_name="stockade")
