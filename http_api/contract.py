"""Makes ``assets/openapi.json``, which a node serves, from ``docs/openapi.yaml``, which is edited by hand.

``python -m stockade.http_api.contract docs/openapi.yaml``. Tests compare the two with each other, and both with the
routes and with the shapes of bodies. Needs PyYAML, which a node does not.
"""

import json
import sys
from pathlib import Path

from .handlers.system import ASSETS


def served(source: str) -> str:
    """The JSON text that a node serves, made of the YAML text ``source``."""
    import yaml  # type: ignore[import-untyped]  # noqa: PLC0415

    return json.dumps(yaml.safe_load(source), ensure_ascii=False, indent=1) + "\n"


def main(source: str) -> None:
    """Write ``assets/openapi.json`` from the YAML file ``source``."""
    (ASSETS / "openapi.json").write_text(served(Path(source).read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
