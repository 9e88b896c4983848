"""The calls of operators, a part of `Client`: nodes and leaders, principals, metrics and refusals of one node."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

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
from ...partition.errors import NotEnoughReplicas
from ..transport.calls import Calls, decode, present, quoted
from ..transport.http import Answer, Request

T = TypeVar("T")

SLOW_S = 10.0
"""How long changes of topics, members and leaders may take before the log warns that they wait."""
LISTED_MAX = 1000
"""The most entries of a list that the cluster returns in one answer."""


class Administration:
    """Calls of operators. In a cluster with principals they need the right admin cluster; `balance_plan` and
    `refused_writes` need read cluster only, and `cluster`, `caller` and `metrics` no right.
    """

    calls: Calls

    # Nodes. A change returns once it is decided; `cluster` shows how far it is carried out.

    async def cluster(self) -> Cluster:
        """The cluster as the answering node sees it."""
        return await self.calls.call(Cluster, "GET", "/v1/cluster")

    async def add_node(self, node_id: str, url: str, raft_address: str, zone: str | None = None) -> Cluster:
        """Make a node known to the cluster, so that it may join. Repeating the call changes nothing.

        ``url``: base URL for clients. ``raft_address``: host:port for the other nodes. Raises InvalidRequest when
        another member has one of these.
        """
        body = {"action": "add", "node_id": node_id, "url": url, "raft_address": raft_address} | present(zone=zone)
        return await self.calls.call(Cluster, "POST", "/v1/cluster/members", body=body, quiet_s=SLOW_S)

    async def removal(self, *, node_id: str | None = None, zone: str | None = None) -> RemovalPlan:
        """The plan of a removal: the replicas that would move if a node, or all nodes of a zone, were removed.

        Raises NotFound, NotEnoughReplicas.
        """
        body = {"action": "remove", "dry_run": True} | present(node_id=node_id, zone=zone)
        return await self._remove(RemovalPlan, body)

    async def remove_node(self, node_id: str, *, if_plan: str | None = None) -> Cluster:
        """Begin to move every replica away from a node, which then leaves the cluster.

        ``if_plan``: only if the plan of `removal` still has this digest (else PlanChanged). Raises NotFound,
        NotEnoughReplicas.
        """
        return await self._remove(Cluster, {"action": "remove", "node_id": node_id} | present(if_plan=if_plan))

    async def remove_zone(self, zone: str, *, if_plan: str | None = None) -> Cluster:
        """Begin to remove all nodes of a zone at once (a zone may be a machine that runs several nodes).

        ``if_plan``: as for `remove_node`. Raises NotFound, NotEnoughReplicas, PlanChanged.
        """
        return await self._remove(Cluster, {"action": "remove", "zone": zone} | present(if_plan=if_plan))

    async def _remove(self, kind: type[T], body: dict[str, Any]) -> T:
        """A removal or its plan. Nodes that are away count here, so where they are too few only an operator can help,
        by adding one, and the refusal comes at once.
        """
        path = "/v1/cluster/members"
        return await self.calls.call(kind, "POST", path, body=body, quiet_s=SLOW_S, final=NotEnoughReplicas)

    async def raise_feature_level(self, level: int) -> Cluster:
        """Let the cluster use what this feature level brought, once all members support the level. After that no node
        can go back to older software. Repeating the call changes nothing. Raises InvalidRequest, FeatureUpdateFailed.
        """
        return await self.calls.call(Cluster, "POST", "/v1/cluster/feature_level", body={"level": level})

    async def reassign(self, topic: str, partition: int, replicas: Sequence[str]) -> Reassignment:
        """Begin to move a partition's replicas to these nodes (node ids).

        Raises UnknownTopicOrPartition, NotFound for an unknown node, InvalidRequest.
        """
        body = {"topic": topic, "partition": partition, "replicas": list(replicas)}
        return await self.calls.call(Reassignment, "POST", "/v1/cluster/reassignments", body=body)

    async def balance_plan(self) -> BalancePlan:
        """The plan that would bring the cluster into balance now (leaders that go home, replicas that move), with the
        settings of the balance.
        """
        return await self.calls.call(BalancePlan, "GET", "/v1/cluster/balance")

    async def balance(self, *, if_plan: str) -> BalancePlan:
        """Begin everything in the plan that `balance_plan` returned with this digest (``plan``).

        Raises PlanChanged when the plan is another one by now, as it is on a repetition of what has begun already.
        """
        body = {"if_plan": if_plan}
        return await self.calls.call(BalancePlan, "POST", "/v1/cluster/balance", body=body, quiet_s=SLOW_S)

    async def change_balance(self, changes: Mapping[str, str | int]) -> BalanceSettings:
        """Change fields of BalanceSettings, such as ``{"mode": "off"}``; returns the new settings.

        Raises InvalidRequest, FeatureLevelTooLow.
        """
        return await self.calls.call(BalanceSettings, "PATCH", "/v1/cluster/balance", body=dict(changes))

    async def controllers_plan(self, node_ids: Sequence[str] | None) -> ControllersPlan:
        """The plan that `choose_controllers` would carry out with these nodes.

        Raises NotFound for an unknown node, InvalidRequest, FeatureLevelTooLow.
        """
        body = {"node_ids": None if node_ids is None else list(node_ids), "dry_run": True}
        return await self.calls.call(ControllersPlan, "POST", "/v1/cluster/controllers", body=body)

    async def choose_controllers(self, node_ids: Sequence[str] | None, *, if_plan: str | None = None) -> Cluster:
        """Begin to move the controller group to these nodes (1, 3 or 5), where it stays; None: the cluster chooses the
        nodes, spread over zones. ``if_plan``: only if `controllers_plan` still has this digest (else PlanChanged).
        """
        body = {"node_ids": None if node_ids is None else list(node_ids)} | present(if_plan=if_plan)
        return await self.calls.call(Cluster, "POST", "/v1/cluster/controllers", body=body, quiet_s=SLOW_S)

    async def transfer_leader(self, topic: str | None, partition: int | None, node_id: str | None = None) -> LeaderInfo:
        """Transfer a partition's leadership, or with both None that of the controller group.

        Returns once the new leader is elected. ``node_id`` None: to any other voter, in a single attempt, since a
        repetition would transfer the leadership again. Raises NotFound when the node is no voter, NotEnoughReplicas
        when there is no other voter.
        """
        body = {"topic": topic, "partition": partition} | present(node_id=node_id)
        path = "/v1/cluster/leaders"
        if node_id is not None:
            return await self.calls.call(LeaderInfo, "POST", path, body=body, quiet_s=SLOW_S)
        headers = {"Content-Type": "application/json"}
        request = Request(method="POST", path=path, headers=headers, body=msgspec.json.encode(body))
        return decode(await self.calls.once(request), LeaderInfo)

    async def refused_writes(self, node: str, most: int = 100) -> RefusedWrites:
        """The latest ``most`` writes that partitions refused at the node with this base URL; a single attempt."""
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
        """A page of the ledger: up to ``most`` entries from number ``first`` on; only those about ``topic``, of
        ``principal``, and of the kind ``act``, where given. A page may be empty although more entries follow: ask again
        from its ``next`` until ``next == end``. ``wait_ms``: how long the node waits for an entry at the ledger's end.
        """
        params = {"from": first, "n": most} | present(topic=topic, principal=principal, act=act)
        params |= {"wait_ms": wait_ms} if wait_ms else {}
        return await self.calls.call(LedgerPage, "GET", "/v1/ledger", params=params, wait_ms=wait_ms)

    # Principals. A change returns once every node that can be reached applies it.

    async def caller(self) -> CallerInfo:
        """The principal that the cluster takes this client for, and its rights."""
        return await self.calls.call(CallerInfo, "GET", "/v1/caller")

    async def principals(self, prefix: str = "", most: int = LISTED_MAX) -> PrincipalList:
        """The first ``most`` principals whose names begin with ``prefix``."""
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

        ``quota`` None: no bounds but the cluster's. ``token_hashes``: the hashes of all tokens that the principal shall
        have, as `stockade principals token` prints them; None: it keeps its tokens.

        The first principal of a cluster must have the right admin cluster and a credential. Raises InvalidRequest, with
        every fault at once, also when the caller would lock itself out; ThrottlingQuotaExceeded.
        """
        body: dict[str, object] = {"rights": list(rights), "certificates": list(certificates)}
        body |= {"subjects": list(subjects), "quota": PrincipalQuota() if quota is None else quota}
        if token_hashes is not None:
            body["tokens"] = [{"hash": each} for each in token_hashes]
        return await self.calls.call(PrincipalInfo, "PUT", _principal(name), body=body)

    async def delete_principal(self, name: str) -> None:
        """Delete a principal: its credentials are refused from then on.

        Raises NotFound, and InvalidRequest for the caller's own principal.
        """
        await self.calls.send("DELETE", _principal(name))

    async def add_token(
        self, principal: str, *, token_hash: str | None = None, expires_ms: int | None = None
    ) -> IssuedToken:
        """Give a principal one more token; it has two at most. ``token_hash`` None: the cluster makes the token, and
        only this answer has it. That is a single attempt, since a repetition would make another token.
        ``expires_ms``: milliseconds since 1970; None: never.

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
        """Delete the token with this id: it is refused from then on.

        Raises NotFound, and InvalidRequest for the caller's last credential.
        """
        await self.calls.send("DELETE", f"{_principal(principal)}/tokens/{quoted(token_id)}")

    async def _at(self, node: str, path: str, **params: int) -> Answer:
        return await self.calls.once(Request(method="GET", path=path, params=params, node=node, only_node=True))


def listed(prefix: str, most: int) -> dict[str, str | int]:
    """The query parameters of a request for the first ``most`` entries of a list."""
    return {"n": most} | present(prefix=prefix or None)


def _principal(name: str) -> str:
    return f"/v1/principals/{quoted(name)}"
