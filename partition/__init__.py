"""Floor 1: the vocabulary of the product and the state machine of one partition.

Deterministic: no clock, no asyncio, no randomness; only `log`, `durable` and `places` touch files.

In: commands (`commands.py`), each with everything that its verdict may depend on.
Out: answers, refusals (`errors.py`), and bytes on disk.
May import: nothing of the house.
"""
