"""What all refusals have in common (errors.py has the refusals)."""

from typing import Any, ClassVar, TypedDict, Unpack


class Policy(TypedDict, total=False):
    """What a class of refusals says of itself, in its ``class`` line; the rest it has from its base."""

    code: str
    http_status: int
    title: str
    retriable: bool
    no_side_effects: bool
    metadata_stale: bool
    explaining: frozenset[str]


class StockadeError(Exception):
    """Base of all refusals. ``fields`` are the members that the problem document carries beside the common ones."""

    code: ClassVar[str]
    title: ClassVar[str]
    http_status: ClassVar[int]
    retriable: ClassVar[bool] = False
    no_side_effects: ClassVar[bool] = True
    metadata_stale: ClassVar[bool] = False
    explaining: ClassVar[frozenset[str]] = frozenset()
    """Fields that are for people only, as detail is."""

    def __init_subclass__(cls, **policy: Unpack[Policy]) -> None:
        super().__init_subclass__()
        for name, value in policy.items():
            setattr(cls, name, value)

    def __init__(self, detail: str | None = None, **fields: Any) -> None:
        """``detail`` says in a sentence what happened this time; it defaults to the title."""
        self.detail: str = detail or self.title
        self.fields: dict[str, Any] = fields
        super().__init__(f"{self.code}: {self.detail}")

    @property
    def status(self) -> int:
        """HTTP status of this instance; the class's, except where the contract gives one code two."""
        return self.http_status

    def __eq__(self, other: object) -> bool:
        """Two refusals are equal when they say the same; what is for people does not count."""
        return type(self) is type(other) and self._verdict() == other._verdict()

    def __hash__(self) -> int:
        return hash(self.code)

    def _verdict(self) -> dict[str, Any]:
        return {name: value for name, value in self.fields.items() if name not in self.explaining}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.fields.items())})"
