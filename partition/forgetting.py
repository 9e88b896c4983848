"""What a partition is asked about producers that it may have forgotten. Part of its commands (commands.Command)."""

import msgspec


class ForgetProducers(msgspec.Struct, frozen=True, tag="forget_producers"):
    """Which of these producers are not known here? Of them nothing is taken any more that was decided up to ``order``,
    an index of the controller's log: whoever writes again has to be asked for anew. Answers ProducersForgotten.
    """

    pids: list[int]
    order: int


class ProducersForgotten(msgspec.Struct, frozen=True, tag="producers_forgotten"):
    """Those that are not known here."""

    pids: list[int]
