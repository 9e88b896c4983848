"""The errors of remote calls between nodes, outside Raft. transport.py makes and serves the calls.

A call is never repeated. It has one of three outcomes: surely not sent (ConnectionError), answered, or unknown.
"""


class CallUnknown(TimeoutError):
    """The call was sent, and no answer came in time, or before the node fell silent or was disconnected. The other node
    may have acted on it.
    """


class CallFailed(Exception):
    """The other node's handler failed; the text says how."""


class CallRefused(Exception):
    """Raised by a handler that cannot serve the call now. The caller gets a CallFailed; this node, which is sound, logs
    nothing.
    """
