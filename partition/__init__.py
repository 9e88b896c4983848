"""The pure vocabulary and state machine of one partition: no clock, no asyncio, no randomness."""
