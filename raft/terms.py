"""The terms of a log's entries, as runs of equal ones: few numbers, however long the log is. Pure."""

from bisect import bisect_right


class Terms:
    """Terms by index, from a first index on. They only grow."""

    def __init__(self, index: int, term: int) -> None:
        self._starts = [index]
        self._terms = [term]

    @property
    def last(self) -> int:
        """The term of the last run."""
        return self._terms[-1]

    def add(self, index: int, term: int) -> None:
        """The next entry."""
        if term != self._terms[-1]:
            self._starts.append(index)
            self._terms.append(term)

    def at(self, index: int) -> int:
        """The term at ``index``."""
        return self._terms[-1] if index >= self._starts[-1] else self._terms[bisect_right(self._starts, index) - 1]

    def run_start(self, index: int) -> int:
        """The first index of the run that ``index`` lies in."""
        return self._starts[bisect_right(self._starts, index) - 1]

    def run_above(self, index: int, term: int) -> int:
        """The first index of the runs up to that of ``index`` whose terms are above ``term``."""
        run = bisect_right(self._starts, index) - 1
        while run > 0 and self._terms[run - 1] > term:
            run -= 1
        return self._starts[run]

    def cut(self, from_index: int) -> None:
        """Forget everything from ``from_index`` on, which is not the first."""
        while self._starts[-1] >= from_index:
            self._starts.pop()
            self._terms.pop()

    def begin_at(self, index: int) -> None:
        """Forget everything before ``index``."""
        run = bisect_right(self._starts, index)
        self._starts[:run], self._terms[:run] = [index], [self._terms[run - 1]]
