"""Counts what a piece of work takes in steps of the interpreter: the same number on every run and every machine."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def steps(work: Callable[[], object]) -> int:
    """Bytecode instructions that ``work`` executes. Loops in C (sorting, copying) count as one."""
    return _monitored(work) if sys.version_info >= (3, 12) else _traced(work)


def _monitored(work: Callable[[], object]) -> int:
    """From Python 3.12 on, where ``sys.settrace`` misses instructions of functions that it sees for the first time."""
    count = 0

    def step(*_: object) -> None:
        nonlocal count
        count += 1

    monitoring: Any = vars(sys)["monitoring"]  # type checkers look at the oldest Python
    tool, instruction = monitoring.PROFILER_ID, monitoring.events.INSTRUCTION
    monitoring.use_tool_id(tool, __name__)
    monitoring.register_callback(tool, instruction, step)
    try:
        monitoring.set_events(tool, instruction)
        work()
    finally:
        monitoring.set_events(tool, 0)
        monitoring.register_callback(tool, instruction, None)
        monitoring.free_tool_id(tool)
    return count


def _traced(work: Callable[[], object]) -> int:
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count
