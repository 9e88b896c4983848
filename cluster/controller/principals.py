"""The replicated principals of the cluster: the commands that change them, and the state. Pure.

The principals of a node's configuration are not among them (access/principals.py): a node knows its configured
principals without a controller, so an operator can still log in with them when every replicated credential is lost.
"""

from collections.abc import Iterable, Sequence

import msgspec

from ...partition.errors import InvalidRequest, NotFound, ThrottlingQuotaExceeded
from ..access.principals import PRINCIPALS_MAX, TOKENS_MAX, Principal, PrincipalToken, faults_of, token_id
from ..access.quotas import NO_QUOTA, Quota
from ..access.rights import Rights, rights_of
from ..access.store import PrincipalTable
from .timed import Asked, Done

RIGHTS_OF_ALL_MAX = 100_000
"""Rights of all principals together."""
RETRY_AFTER_MS = 1000


class PutPrincipal(Asked, frozen=True, tag="put_principal"):
    """Create a principal, or give it these rights, certificates, subjects and quota. ``tokens`` None: it keeps its
    tokens. ``opens``: the cluster was open to every caller when this was asked, and no longer is after it.

    Answers PrincipalPut, or InvalidRequest, ThrottlingQuotaExceeded.
    """

    name: str
    rights: list[str]
    certificates: list[str]
    tokens: list[PrincipalToken] | None = None
    subjects: tuple[str, ...] = ()
    quota: Quota = NO_QUOTA
    opens: bool = False


class DeletePrincipal(Asked, frozen=True, tag="delete_principal"):
    """Delete a principal. Answers Done, or NotFound, InvalidRequest (the caller's own)."""

    name: str


class AddPrincipalToken(Asked, frozen=True, tag="add_principal_token"):
    """Give a principal one more token; the same again changes nothing. Answers Done, or NotFound, InvalidRequest."""

    name: str
    token: PrincipalToken


class DeletePrincipalToken(Asked, frozen=True, tag="delete_principal_token"):
    """Delete a token. Answers Done, or NotFound (the principal, or the token), InvalidRequest (the caller's last
    credential).
    """

    name: str
    token_id: str


PrincipalCommand = PutPrincipal | DeletePrincipal | AddPrincipalToken | DeletePrincipalToken


class PrincipalPut(msgspec.Struct, frozen=True, tag="principal_put"):
    """The principal is as asked; ``created``: there was none of this name."""

    created: bool


class SavedPrincipals(msgspec.Struct, frozen=True):
    """The saved state of Principals; ``index``: of the last command that changed them."""

    index: int = 0
    rows: list[Principal] = []


class Principals:
    """The replicated principals: ``rows`` by name; ``index`` is that of the last command that changed them."""

    def __init__(self) -> None:
        self.rows: dict[str, Principal] = {}
        self.index: int = 0
        self._rights_count = 0
        self._owners: dict[tuple[str, str], str] = {}

    def decide(self, index: int, command: PrincipalCommand) -> PrincipalPut | Done:
        """Apply one command. Raises its refusals before anything is changed."""
        match command:
            case PutPrincipal():
                return self._put(index, command)
            case DeletePrincipal(name=name):
                self.find(name)
                if name == command.by.principal:
                    raise InvalidRequest("a principal cannot delete itself: another one that has admin cluster can")
                self._drop(name)
            case AddPrincipalToken(name=name, token=token):
                row = self.find(name)
                if token in row.tokens:
                    return Done()
                if len(row.tokens) == TOKENS_MAX:
                    raise InvalidRequest(f"a principal has {TOKENS_MAX} tokens at most: delete the old one first")
                self._keep(msgspec.structs.replace(row, tokens=[*row.tokens, token]))
            case DeletePrincipalToken(name=name, token_id=found):
                row = self.find(name)
                left = [token for token in row.tokens if token_id(token) != found]
                if len(left) == len(row.tokens):
                    raise NotFound(f"principal {name} has no token {found}", what="token")
                after = msgspec.structs.replace(row, tokens=left)
                _check_stays_inside(command, after)
                self._keep(after)
        self.index = index
        return Done()

    def find(self, name: str) -> Principal:
        """The principal of this name. Raises NotFound."""
        row = self.rows.get(name)
        if row is None:
            raise NotFound(f"there is no principal {name}", what="principal")
        return row

    def rights(self, name: str) -> Rights:
        """The rights of a principal; no rights when there is no such principal."""
        row = self.rows.get(name)
        return rights_of([] if row is None else row.rights)

    def table(self) -> PrincipalTable:
        """The table of principals that nodes follow, ascending by name."""
        return PrincipalTable(self.index, [self.rows[name] for name in sorted(self.rows)])

    def save(self) -> SavedPrincipals:
        """The state, equal on replicas that applied the same commands."""
        return SavedPrincipals(self.index, self.table().rows)

    def load(self, saved: SavedPrincipals) -> None:
        """Inverse of ``save``, on an empty instance."""
        self.index = saved.index
        for row in saved.rows:
            self._keep(row)

    def _put(self, index: int, command: PutPrincipal) -> PrincipalPut:
        before = self.rows.get(command.name)
        kept = [] if before is None else before.tokens
        tokens = kept if command.tokens is None else command.tokens
        after = Principal(
            command.name, command.rights, tokens, command.certificates, list(command.subjects), command.quota
        )
        if command.opens and not self.rows and not _administers(after):
            raise InvalidRequest(
                "the first principal must have the right admin cluster, and a token, a certificate or a "
                "subject: without one that has, everybody would be locked out"
            )
        _check_stays_inside(command, after)
        if before is None and len(self.rows) >= PRINCIPALS_MAX:
            raise ThrottlingQuotaExceeded(f"the cluster has {PRINCIPALS_MAX} principals", retry_after_ms=RETRY_AFTER_MS)
        self._keep(after)
        self.index = index
        return PrincipalPut(before is None)

    def _keep(self, row: Principal) -> None:
        """Put a principal in place of the one of its name. Raises InvalidRequest, ThrottlingQuotaExceeded, before
        anything is changed.
        """
        faults = [*faults_of(row), *self._taken(row)]
        if faults:
            raise InvalidRequest("; ".join(faults))
        before = self.rows.get(row.name)
        rights_count = self._rights_count + len(row.rights) - (0 if before is None else len(before.rights))
        if rights_count > RIGHTS_OF_ALL_MAX:
            raise ThrottlingQuotaExceeded(
                f"the principals have {RIGHTS_OF_ALL_MAX} rights together", retry_after_ms=RETRY_AFTER_MS
            )
        if before is not None:
            self._drop(row.name)
        self.rows[row.name] = row
        self._rights_count = rights_count
        self._owners |= dict.fromkeys(_credentials(row), row.name)

    def _taken(self, row: Principal) -> Iterable[str]:
        for what, name in _credentials(row):
            owner = self._owners.get((what, name), row.name)
            if owner != row.name:
                yield f"principal {owner} has the {what} {name} already"

    def _drop(self, name: str) -> None:
        row = self.rows.pop(name)
        self._rights_count -= len(row.rights)
        for credential in _credentials(row):
            del self._owners[credential]


def _credentials(row: Principal) -> Sequence[tuple[str, str]]:
    names = [("certificate", name) for name in row.certificates] + [("subject", name) for name in row.subjects]
    return list(dict.fromkeys([*names, *(("token", token_id(token)) for token in row.tokens)]))


def _administers(row: Principal) -> bool:
    try:
        may = rights_of(row.rights).allow("admin", "cluster", "")
    except ValueError:
        return False
    return may and bool(_credentials(row))


def _check_stays_inside(command: Asked, after: Principal) -> None:
    """Raises InvalidRequest when a caller would remove its own right ``admin cluster`` or its own last credential: it
    could not undo that.
    """
    if after.name == command.by.principal and not _administers(after):
        raise InvalidRequest(
            "this would lock you out: a principal keeps its own right admin cluster and one credential; another "
            "principal that has the right can take them"
        )
