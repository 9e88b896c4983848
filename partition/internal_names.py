"""Names that Stockade itself gives to topics; without any library, since a Spark executor may have none."""

INTERNAL_TOPIC_PREFIX = "stockade-sink."
"""Topics with such names keep the decisions of a Spark sink. Lists leave them out unless they are asked for."""
LEDGER_TOPIC = "stockade.ledger"
"""Keeps the ledger (cluster/controller/ledger.py). No request changes it; who may read it has ``admin cluster``."""
