"""What operators ask of a cluster: nodes and leaders, principals, what a node says of itself. Part of `Client`."""

from collections.abc import Mapping, Sequence

import msgspec

from ...partition.api.cluster import (
    BalancePlan,
    BalanceSettings,
    Cluster,
    ControllersPlan,
    LeaderInfo,
    Reassignment,
    RemovalPlan,
)
from ...partition.api.ledger import LedgerPage
from ...partition.api.principals import CallerInfo, IssuedToken, PrincipalInfo, PrincipalList, PrincipalQuota
from ...partition.api.records import RefusedWrites
from ..transport.calls import Calls, decode, present, quoted
from ..transport.http import Answer, Request

SLOW_S = 10.0
"""How long changes of topics, members and leaders may take before the log warns that they wait."""
LISTED_MAX = 1000
"""The most lines of a list that the cluster gives at once."""


class Administration:
    """Calls of operators; needs the right admin cluster where the cluster has principals, `caller` aside."""

    calls: Calls

    # Nodes. Changes answer when they are decided; `cluster` shows how far they are carried out.

    async def cluster(self) -> Cluster:
        """The cluster as the answering node sees it."""
        return await self.calls.call(Cluster, "GET", "/v1/cluster")

    async def add_node(self, node_id: str, url: str, raft_address: str, zone: str | None = None) -> Cluster:
        """Make a node known, so that it may join. Repeating it changes nothing.

        ``url``: base URL for clients. ``raft_address``: host:port for the other nodes. Raises InvalidRequest where
        another member has one of them.
        """
        body = {"action": "add", "node_id": node_id, "url": url, "raft_address": raft_address} | present(zone=zone)
        return await self.calls.call(Cluster, "POST", "/v1/cluster/members", body=body, quiet_s=SLOW_S)

    async def removal(self, *, node_id: str | None = None, zone: str | None = None) -> RemovalPlan:
        """What the removal of a node, or of all nodes of a zone, would move. Raises NotFound, NotEnoughReplicas."""
        body = {"action": "remove", "dry_run": True} | present(node_id=node_id, zone=zone)
        return await self.calls.call(RemovalPlan, "POST", "/v1/cluster/members", body=body)

    async def remove_node(self, node_id: str, *, if_plan: str | None = None) -> Cluster:
        """Begin to move every replica away from a node, which then leaves; with ``if_plan``, only if `removal` has this
        digest still (PlanChanged). Raises NotFound, NotEnoughReplicas.
        """
        body = {"action": "remove", "node_id": node_id} | present(if_plan=if_plan)
        return await self.calls.call(Cluster, "POST", "/v1/cluster/members", body=body, quiet_s=SLOW_S)

    async def remove_zone(self, zone: str, *, if_plan: str | None = None) -> Cluster:
        """Begin to remove all nodes of a zone (a machine that runs several) at once; ``if_plan`` as for a node.

        Raises NotFound, NotEnoughReplicas, PlanChanged.
        """
        body = {"action": "remove", "zone": zone} | present(if_plan=if_plan)
        return await self.calls.call(Cluster, "POST", "/v1/cluster/members", body=body, quiet_s=SLOW_S)

    async def raise_feature_level(self, level: int) -> Cluster:
        """Let the cluster use what this feature level brought, once all members support it: no node can go back to
        older software then. Repeating it changes nothing. Raises InvalidRequest, FeatureUpdateFailed.
        """
        return await self.calls.call(Cluster, "POST", "/v1/cluster/feature_level", body={"level": level})

    async def reassign(self, topic: str, partition: int, replicas: Sequence[str]) -> Reassignment:
        """Begin to move a partition's replicas to these nodes (node ids).

        Raises UnknownTopicOrPartition, NotFound for an unknown node, InvalidRequest.
        """
        body = {"topic": topic, "partition": partition, "replicas": list(replicas)}
        return await self.calls.call(Reassignment, "POST", "/v1/cluster/reassignments", body=body)

    async def balance_plan(self) -> BalancePlan:
        """What would bring the cluster into balance now: leaders that go home, replicas that move; and its settings."""
        return await self.calls.call(BalancePlan, "GET", "/v1/cluster/balance")

    async def balance(self, *, if_plan: str) -> BalancePlan:
        """Begin all that `balance_plan` said with this digest (``plan``). Raises PlanChanged, also on a repetition of
        what has begun already.
        """
        body = {"if_plan": if_plan}
        return await self.calls.call(BalancePlan, "POST", "/v1/cluster/balance", body=body, quiet_s=SLOW_S)

    async def change_balance(self, changes: Mapping[str, str | int]) -> BalanceSettings:
        """Change fields of BalanceSettings, such as ``{"mode": "off"}``; the settings then. Raises InvalidRequest,
        FeatureLevelTooLow.
        """
        return await self.calls.call(BalanceSettings, "PATCH", "/v1/cluster/balance", body=dict(changes))

    async def controllers_plan(self, node_ids: Sequence[str] | None) -> ControllersPlan:
        """What `choose_controllers` would change. Raises NotFound for an unknown node, InvalidRequest,
        FeatureLevelTooLow.
        """
        body = {"node_ids": None if node_ids is None else list(node_ids), "dry_run": True}
        return await self.calls.call(ControllersPlan, "POST", "/v1/cluster/controllers", body=body)

    async def choose_controllers(self, node_ids: Sequence[str] | None, *, if_plan: str | None = None) -> Cluster:
        """Begin to move the controller group to these nodes (1, 3 or 5), where it stays; None: the cluster spreads it
        over zones by itself. ``if_plan``: only if `controllers_plan` has this digest still (PlanChanged).
        """
        body = {"node_ids": None if node_ids is None else list(node_ids)} | present(if_plan=if_plan)
        return await self.calls.call(Cluster, "POST", "/v1/cluster/controllers", body=body, quiet_s=SLOW_S)

    async def transfer_leader(self, topic: str | None, partition: int | None, node_id: str | None = None) -> LeaderInfo:
        """Transfer a partition's leadership, or with both None that of the controller group.

        Answers when the new leader is elected. ``node_id`` None: to any other voter, in a single attempt, since a
        repetition would transfer it again. Raises NotFound when the node is no voter, NotEnoughReplicas when there is
        no other.
        """
        body = {"topic": topic, "partition": partition} | present(node_id=node_id)
        path = "/v1/cluster/leaders"
        if node_id is not None:
            return await self.calls.call(LeaderInfo, "POST", path, body=body, quiet_s=SLOW_S)
        headers = {"Content-Type": "application/json"}
        request = Request(method="POST", path=path, headers=headers, body=msgspec.json.encode(body))
        return decode(await self.calls.once(request), LeaderInfo)

    async def refused_writes(self, node: str, most: int = 100) -> RefusedWrites:
        """The latest writes that the partitions of the node with this base URL refused; a single attempt."""
        return decode(await self._at(node, "/v1/refused_writes", n=most), RefusedWrites)

    async def metrics(self, node: str) -> str:
        """The metrics of the node with this base URL, in the Prometheus text format; a single attempt."""
        return (await self._at(node, "/metrics")).body.decode()

    async def ledger(
        self,
        first: int = 1,
        most: int = LISTED_MAX,
        *,
        topic: str | None = None,
        principal: str | None = None,
        act: str | None = None,
        wait_ms: int = 0,
    ) -> LedgerPage:
        """Entries of the ledger from number ``first`` on, ``most`` of them; those about ``topic``, of ``principal``, of
        the kind ``act``. A page may be empty though more follow: ask again from its ``next`` until that is ``end``.
        ``wait_ms``: how long the node waits for an entry at the end of the ledger.
        """
        params = {"from": first, "n": most} | present(topic=topic, principal=principal, act=act)
        params |= {"wait_ms": wait_ms} if wait_ms else {}
        return await self.calls.call(LedgerPage, "GET", "/v1/ledger", params=params, wait_ms=wait_ms)

    # Principals. A change answers when every node that can be reached acts by it.

    async def caller(self) -> CallerInfo:
        """Who this client is to the cluster, and what it may."""
        return await self.calls.call(CallerInfo, "GET", "/v1/caller")

    async def principals(self, prefix: str = "", most: int = LISTED_MAX) -> PrincipalList:
        """Principals whose names begin with ``prefix``, the first ``most`` of them."""
        return await self.calls.call(PrincipalList, "GET", "/v1/principals", params=listed(prefix, most))

    async def principal(self, name: str) -> PrincipalInfo:
        """A principal, without the secrets of its tokens. Raises NotFound."""
        return await self.calls.call(PrincipalInfo, "GET", _principal(name))

    async def put_principal(
        self,
        name: str,
        rights: Sequence[str],
        *,
        certificates: Sequence[str] = (),
        subjects: Sequence[str] = (),
        quota: PrincipalQuota | None = None,
        token_hashes: Sequence[str] | None = None,
    ) -> PrincipalInfo:
        """Create a principal, or replace its rights, certificates, subjects and quota.

        ``quota`` None: no bounds but the cluster's. ``token_hashes``: of the tokens that it shall have, as `stockade
        principals token` prints them; None: it keeps those that it has.

        The first principal of a cluster must have the right admin cluster and a credential. Raises InvalidRequest, with
        every fault at once, and for a caller that would lock itself out; ThrottlingQuotaExceeded.
        """
        body: dict[str, object] = {"rights": list(rights), "certificates": list(certificates)}
        body |= {"subjects": list(subjects), "quota": PrincipalQuota() if quota is None else quota}
        if token_hashes is not None:
            body["tokens"] = [{"hash": each} for each in token_hashes]
        return await self.calls.call(PrincipalInfo, "PUT", _principal(name), body=body)

    async def delete_principal(self, name: str) -> None:
        """Its credentials let no request in any more. Raises NotFound, InvalidRequest (the caller's own)."""
        await self.calls.send("DELETE", _principal(name))

    async def add_token(
        self, principal: str, *, token_hash: str | None = None, expires_ms: int | None = None
    ) -> IssuedToken:
        """Give a principal one more token, two at most. ``token_hash`` None: the cluster makes one and tells it this
        once, in a single attempt, since a repetition would make another. ``expires_ms``: milliseconds since 1970.

        Raises NotFound, InvalidRequest.
        """
        body = present(hash=token_hash, expires_ms=expires_ms)
        path = f"{_principal(principal)}/tokens"
        if token_hash is not None:
            return await self.calls.call(IssuedToken, "POST", path, body=body)
        headers = {"Content-Type": "application/json"}
        request = Request(method="POST", path=path, headers=headers, body=msgspec.json.encode(body))
        return decode(await self.calls.once(request), IssuedToken)

    async def delete_token(self, principal: str, token_id: str) -> None:
        """The token of this id lets no request in any more. Raises NotFound, InvalidRequest (the caller's last)."""
        await self.calls.send("DELETE", f"{_principal(principal)}/tokens/{quoted(token_id)}")

    async def _at(self, node: str, path: str, **params: int) -> Answer:
        return await self.calls.once(Request(method="GET", path=path, params=params, node=node, only_node=True))


def listed(prefix: str, most: int) -> dict[str, str | int]:
    """The parameters of a request for a list."""
    return {"n": most} | present(prefix=prefix or None)


def _principal(name: str) -> str:
    return f"/v1/principals/{quoted(name)}"
