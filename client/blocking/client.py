"""The calls to a cluster, for code without an event loop: ``from stockade.sync import Client``."""

from types import TracebackType
from typing import Final, Self

from ..api.client import Client as _Client
from ..config import Bootstrap, ClientConfig
from .loop_thread import Blocking, blocking


class Client(Blocking[_Client]):
    """See ``stockade.Client``: the same methods, which block here. Use it in ``with``, or call ``close``."""

    def __init__(self, bootstrap: Bootstrap | None = None) -> None:
        super().__init__(_Client(bootstrap))

    @classmethod
    def of(cls, twin: _Client) -> Self:
        """A blocking Client around an asynchronous one that exists, with the same connections."""
        made = cls.__new__(cls)
        Blocking.__init__(made, twin)
        return made

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if not self._is_parents:
            self.close()

    @property
    def config(self) -> ClientConfig:
        """The configuration."""
        return self.twin.config

    close: Final = blocking(_Client.close)
    connect: Final = blocking(_Client.connect)
    topics: Final = blocking(_Client.topics)
    topic: Final = blocking(_Client.topic)
    create_topic: Final = blocking(_Client.create_topic)
    change_topic: Final = blocking(_Client.change_topic)
    delete_topic: Final = blocking(_Client.delete_topic)
    trim: Final = blocking(_Client.trim)
    contents: Final = blocking(_Client.contents)
    append: Final = blocking(_Client.append)
    fetch: Final = blocking(_Client.fetch)
    offsets: Final = blocking(_Client.offsets)
    tail: Final = blocking(_Client.tail)
    open_session: Final = blocking(_Client.open_session)
    renew_session: Final = blocking(_Client.renew_session)
    close_session: Final = blocking(_Client.close_session)
    acquire: Final = blocking(_Client.acquire)
    ticket: Final = blocking(_Client.ticket)
    cancel_ticket: Final = blocking(_Client.cancel_ticket)
    release: Final = blocking(_Client.release)
    fence_topic: Final = blocking(_Client.fence_topic)
    fences: Final = blocking(_Client.fences)
    sessions: Final = blocking(_Client.sessions)
    own: Final = blocking(_Client.own)
    disown: Final = blocking(_Client.disown)
    resources: Final = blocking(_Client.resources)
    begin_at: Final = blocking(_Client.begin_at)
    position: Final = blocking(_Client.position)
    commit_position: Final = blocking(_Client.commit_position)
    forget_position: Final = blocking(_Client.forget_position)
    groups: Final = blocking(_Client.groups)
    init_producer: Final = blocking(_Client.init_producer)
    producers: Final = blocking(_Client.producers)
    producer: Final = blocking(_Client.producer)
    fence_session: Final = blocking(_Client.fence_session)
    fence_producer: Final = blocking(_Client.fence_producer)
    cluster: Final = blocking(_Client.cluster)
    ledger: Final = blocking(_Client.ledger)
    add_node: Final = blocking(_Client.add_node)
    remove_node: Final = blocking(_Client.remove_node)
    removal: Final = blocking(_Client.removal)
    remove_zone: Final = blocking(_Client.remove_zone)
    raise_feature_level: Final = blocking(_Client.raise_feature_level)
    reassign: Final = blocking(_Client.reassign)
    transfer_leader: Final = blocking(_Client.transfer_leader)
    balance_plan: Final = blocking(_Client.balance_plan)
    balance: Final = blocking(_Client.balance)
    change_balance: Final = blocking(_Client.change_balance)
    controllers_plan: Final = blocking(_Client.controllers_plan)
    choose_controllers: Final = blocking(_Client.choose_controllers)
    caller: Final = blocking(_Client.caller)
    principals: Final = blocking(_Client.principals)
    principal: Final = blocking(_Client.principal)
    put_principal: Final = blocking(_Client.put_principal)
    delete_principal: Final = blocking(_Client.delete_principal)
    add_token: Final = blocking(_Client.add_token)
    delete_token: Final = blocking(_Client.delete_token)
    refused_writes: Final = blocking(_Client.refused_writes)
    metrics: Final = blocking(_Client.metrics)
