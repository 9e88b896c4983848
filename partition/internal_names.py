"""The names that Stockade gives to its own topics; no library is imported, since a Spark executor may have none."""

INTERNAL_TOPIC_PREFIX = "stockade-sink."
"""Topics with such names keep the decisions of a Spark sink. Lists leave them out unless they are asked for."""
LEDGER_TOPIC = "stockade.ledger"
"""The topic of the ledger (cluster/controller/ledger.py). No request changes it; reading it takes ``admin cluster``."""
