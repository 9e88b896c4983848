"""The texts of refusals for people: what happened, in a sentence, and what to do next. They are found by code, and
where one code has several causes, also by the field ``reason``, or ``what`` of NOT_FOUND.

The same words are in the problem documents of HTTP, in the errors of Python and on the command line. Only the words on
how to do it are each surface's own. No code decides by these texts. ``because`` is a template over the refusal's
fields; ``{writer}`` in it is the holder, see `writer_of`.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

Surface = Literal["http", "python", "cli"]
"""The surface on which a person reads a refusal."""
_LABELS: dict[Surface, str] = {"http": "HTTP", "python": "Python", "cli": "Command line"}


class Text(NamedTuple):
    """The text of a refusal. ``because``: what happened; empty: the refusal's ``detail`` says it. ``hint``: what to do
    next; empty: no advice. ``http``, ``python``, ``cli``: how to do that on the surface.
    """

    because: str
    hint: str
    http: str = ""
    python: str = ""
    cli: str = ""

    def on(self, surface: Surface) -> str:
        """What to do next, for readers of this surface."""
        own: str = getattr(self, surface)
        return " ".join(filter(None, (self.hint, own)))

    def everywhere(self) -> str:
        """The hint for a page that readers of all surfaces read."""
        own = [f"{label}: {said}" for surface, label in _LABELS.items() if (said := getattr(self, surface))]
        return " ".join(filter(None, (self.hint, *own)))


def writer_of(holder: Mapping[str, Any]) -> str:
    """A holder of a slot in words: the producer's name, and the client's unless it is the same."""
    producer, client = holder["producer_name"], holder["client_id"]
    return f"producer {producer}" if client in (producer, None) else f"producer {producer} of client {client}"


NO_TEXT = Text("", "")

_LOST = (
    "Stop writing: `outcome` says whether the batch is stored, `stockade grants describe TOPIC` who came. Acquire again"
    " only if this writer shall take over."
)

BY_CODE: dict[str, Text] = {
    "CORRUPT_MESSAGE": Text(
        "",
        "Send the batch again; if it is refused again, the client damages it before it is sent.",
    ),
    "UNAUTHENTICATED": Text(
        "",
        "Give a token that the cluster knows.",
        http="It goes into the header `Authorization: Bearer TOKEN`.",
        python="Give it as `token=` of ClientConfig, or in STOCKADE_TOKEN; to Spark as the option authTokenFile.",
        cli="Give it with --token-file or STOCKADE_TOKEN.",
    ),
    "PERMISSION_DENIED": Text(
        "",
        "Use credentials that have the right, or ask an administrator for it.",
    ),
    "METHOD_NOT_ALLOWED": Text(
        "this route takes the methods in the header Allow, and no other",
        "",
    ),
    "NOT_ACCEPTABLE": Text(
        "this route can answer {available}",
        "Send an Accept header that allows one of these.",
    ),
    "MESSAGE_TOO_LARGE": Text(
        "the request is above the limit of {limit} {unit}",
        "Send less at a time: shorter records, or fewer. The most bytes of a batch are max_batch_bytes of its topic.",
    ),
    "UNSUPPORTED_MEDIA_TYPE": Text(
        "this route takes {accepted}",
        "Send a Content-Type of these, with a body of that type: not compressed, and JSON in UTF-8.",
    ),
    "HEADERS_TOO_LARGE": Text(
        "the headers have more than {limit} bytes",
        "Send fewer or shorter headers.",
    ),
    "INVALID_FENCING_TOKEN": Text(
        "the token names an epoch above {current_epoch}, the highest that has been in force here",
        "Send the epoch of your grant on this partition (`epochs` in the answer to acquire). If you hold all "
        "partitions and this one was added just now, it takes your token once that change is answered: send the same "
        "again.",
    ),
    "INVALID_PRODUCER_EPOCH": Text(
        "the producer's epoch is {current_epoch} here, and the request has another one",
        "A newer instance of this producer runs, or its name was fenced: stop, or ask for a new epoch with "
        "your own pair. `stockade producers status NAME` shows the epoch.",
        http="POST /v1/producers answers one.",
        python="`Client.init_producer` answers one.",
    ),
    "NOT_OWNER": Text(
        "the request's fence_epoch is not an owner's: the partition knows {fence_epoch} as the last one of {resource} "
        "in group {group}",
        "Another session owns the resource, or none does: own it again before you go on. `stockade groups "
        "describe GROUP` shows the owner.",
    ),
    "UNKNOWN_TOPIC_OR_PARTITION": Text(
        "",
        "`stockade topics list` and `stockade topics describe TOPIC` show what exists.",
    ),
    "UNKNOWN_SESSION": Text(
        "the session was never opened, was closed, or expired so long ago that it is forgotten",
        "A session ends when it is not renewed in time: open another one.",
    ),
    "INCONSISTENT_TOPIC_ID": Text(
        "the topic was deleted and created again: its topic_id is {topic_id} now",
        "Look the topic up again, and acquire or number batches anew: nothing of the old topic is there.",
    ),
    "TOPIC_ALREADY_EXISTS": Text(
        "the name is taken by a topic with another definition",
        "Choose another name, or change that topic with `stockade topics alter`.",
    ),
    "STAGE_ALREADY_EXISTS": Text(
        "stage {stage} exists, and has other bytes",
        "Choose another name for the stage, or delete the one that exists.",
    ),
    "TOPIC_SEALED": Text(
        "the topic was sealed for good; the log ends at {log_end}",
        "Write to another topic.",
    ),
    "UNKNOWN_PRODUCER_ID": Text(
        "the partition has forgotten what this producer wrote",
        "Ask for a new epoch and begin at sequence number 0; read the log's end first if a batch may be stored.",
        http="POST /v1/producers answers one.",
        python="`Client.init_producer` answers one.",
    ),
    "INVALID_PRODUCER_ID_MAPPING": Text(
        "the producer id was never given out, or the cluster has forgotten its name",
        "Ask for a new id; read the log's end first if a batch may be stored.",
        http="POST /v1/producers answers one.",
        python="`Client.init_producer` answers one.",
    ),
    "GENERATION_FENCED": Text(
        "{resource} has a live owner of generation {generation}",
        "Wait until it is free, or claim it with a higher generation. `stockade groups describe GROUP` shows the "
        "owner.",
        http="The claim's `generation` says which.",
        python="`wait=True` or `generation=` of `Session.own` does so.",
        cli="--wait or --generation does so.",
    ),
    "HOLD_AND_WAIT": Text(
        "a session that holds a grant, or waits for one, may not wait for another",
        "Release what the session holds and cancel its ticket first, or use another session.",
    ),
    "SESSION_EXPIRED": Text(
        "the session has ended: it was not renewed in time, or an operator ended it",
        "Open another session and acquire again. Check what is stored before you send the rest. END in `stockade grants"
        " describe TOPIC` says which: expired, or fenced with the operator's reason.",
    ),
    "FEATURE_UPDATE_FAILED": Text(
        "the feature level of the cluster cannot be that one now",
        "Upgrade and start the nodes that are named, or remove them from the cluster; a level never goes down.",
        http="GET /v1/cluster shows what each node supports.",
        cli="`stockade cluster status` shows what each node supports.",
    ),
    "FEATURE_LEVEL_TOO_LOW": Text(
        "this needs feature level {needed}, and the cluster has {feature_level}",
        "Upgrade every node, then raise the level; until then do without this.",
        http="POST /v1/cluster/feature_level raises it.",
        cli="`stockade cluster upgrade --finalize` raises it.",
    ),
    "OFFSET_MISMATCH": Text(
        "the log ends at {log_end}, not at the offset that the request names",
        "Read from there, then decide again.",
    ),
    "PLAN_CHANGED": Text(
        "the state has changed since this was planned",
        "Look at what the order would hit now, then decide again. If an earlier attempt had no answer, that attempt may"
        " have made the change.",
        cli="--plan shows it with the digest to --confirm.",
    ),
    "OFFSET_OUT_OF_RANGE": Text(
        "",
        "Choose an offset from `log_start` to `log_end`.",
        http="GET /v1/topics/TOPIC/partitions/N/offsets answers both.",
        python="`Client.offsets` answers both.",
        cli="`stockade topics offsets TOPIC` shows both.",
    ),
    "NOT_LEADER_OR_FOLLOWER": Text(
        "this node does not lead the group; the leader that it knows is {leader}",
        "Send the request there; without a leader, wait a moment.",
    ),
    "FENCING_TOKEN_REQUIRED": Text(
        "the topic takes writes with a fencing token only",
        "Acquire a grant first, and write under its token.",
        http="POST /v1/topics/TOPIC/grants answers one; each write then has the headers Stockade-Session,"
        " Stockade-Fence-Grant and Stockade-Fence-Epoch.",
        python="`async with producer.exclusive(topic)` does both.",
        cli="The option --exclusive does both.",
    ),
    "THROTTLING_QUOTA_EXCEEDED": Text(
        "",
        "Wait for retry_after_ms, then send it again. If detail names things that are kept (topics, sessions, groups,"
        " names, stages), waiting does not help: remove some, or raise the principal's quota.",
    ),
    "WAIT_QUEUE_FULL": Text(
        "",
        "Wait for retry_after_ms at least, then queue again.",
    ),
    "INTERNAL_ERROR": Text(
        "the server met a fault of its own; a request that changes something may have done so",
        "Check what is stored before you repeat it, and look for the request's id in the node's log.",
    ),
    "LEADER_NOT_AVAILABLE": Text(
        "no leader is known that can be reached; nothing was proposed",
        "Wait a moment; if it lasts, `stockade doctor` shows what is missing.",
    ),
    "NOT_ENOUGH_REPLICAS": Text(
        "too few nodes are up; nothing was proposed",
        "Start the nodes that are missing (`stockade doctor` names them), add nodes, or ask for fewer replicas.",
    ),
    "LEDGER_FULL": Text(
        "the ledger's topic takes nothing, and what waits for it has reached its bound; nothing was changed",
        "Try again. If it lasts, look why stockade.ledger/0 has no leader: `stockade doctor` names what is missing."
        " Grants, takeovers and fences are never refused for this.",
    ),
    "REQUEST_TIMED_OUT": Text(
        "the request was proposed and not decided in time: it may still take effect",
        "Check what is stored before you repeat it. A batch with a producer's numbers may be sent again as it is.",
    ),
    "INSUFFICIENT_STORAGE": Text(
        "",
        "Reads, trims and deletions go on: trim or delete what is not needed, lower the retention, or give the nodes "
        "in `nodes` larger disks; then the same request succeeds.",
    ),
    "STORAGE_QUOTA_EXCEEDED": Text(
        "",
        "Reads, trims and deletions go on: trim what is not needed, lower the topic's retention, or raise its "
        "`quota_bytes`; then the same request succeeds.",
    ),
    "TIERED_STORE_UNAVAILABLE": Text(
        "",
        "Try again in a while: appends, and reads of what is on the nodes' disks, go on. If it lasts, look whether the "
        "nodes reach the store, and what their logs say of it.",
        cli="`stockade serve --config node.toml --check` tries it.",
    ),
    "UNREADABLE_ANSWER": Text(
        "",
        "Compare the address with the nodes' (`stockade cluster status`), and ask it by hand: `curl ADDRESS/readyz`. A "
        "proxy, a captive portal or another service may answer there. Check what is stored before you repeat a write; "
        "a batch with a producer's numbers may be sent again as it is.",
    ),
    "CLUSTER_UNREACHABLE": Text(
        "",
        "Check that the nodes run and that this machine reaches them. To try Stockade here: `stockade cluster`.",
        python="`bootstrap=` or STOCKADE_URL names the nodes to ask.",
        cli="--url or STOCKADE_URL names the nodes to ask.",
    ),
    "PLAINTEXT_REFUSED": Text(
        "",
        "Let `url` in the node's node.toml be its `https://` address. If a token may go there without TLS, name its"
        " `http://` address yourself.",
        python="`bootstrap=` or STOCKADE_URL names the nodes.",
        cli="--url or STOCKADE_URL names the nodes.",
    ),
    "BUFFER_FULL": Text("", "Send more slowly, or give the producer a larger buffer_bytes_max or send_timeout_ms."),
    "CLIENT_CLOSED": Text("", "Open it, and use it before it is closed: `async with` does both."),
    "PRODUCER_ABORTED": Text(
        "",
        'Send the record again if its `outcome` is "absent"; if that is "unknown", read the log\'s end first.',
    ),
    "PRODUCER_ERRORS": Text(
        "",
        'Each of `failures` has an `outcome`: send its records again where that is "absent"; where it is "unknown",'
        " read the log's end first.",
    ),
    "CLIENT_FAULT": Text("", "Check what is stored before you repeat it, and report the traceback."),
}
"""The text of each code, the client's own codes included."""

BY_REASON: dict[tuple[str, str], Text] = {
    ("NOT_FOUND", "route"): Text(
        "there is no such route",
        "Check the path. A node with older software lacks newer routes: `stockade cluster upgrade` shows the version of"
        " each node.",
        http="GET /openapi.json lists the routes of a node.",
    ),
    ("NOT_FOUND", "ticket"): Text(
        "there is no such ticket: it was cancelled, is past its deadline, or was never made",
        "Acquire again if this writer shall still wait: that makes another ticket.",
    ),
    ("NOT_FOUND", "producer"): Text(
        "there is no such producer",
        "`stockade producers list` shows the names that the cluster knows.",
    ),
    ("NOT_FOUND", "node"): Text(
        "there is no such node",
        "`stockade cluster status` shows the nodes and their zones, `stockade topics describe TOPIC` which of them have"
        " replicas of a partition.",
    ),
    ("NOT_FOUND", "stage"): Text(
        "there is no such stage",
        "It was deleted, its time has ended, or it was never put: put it again, unless its records are in the log.",
        http="GET /v1/topics/TOPIC/partitions/N/stages lists the stages.",
    ),
    ("NOT_FOUND", "principal"): Text(
        "there is no such principal",
        "`stockade principals list` shows the principals.",
    ),
    ("NOT_FOUND", "token"): Text(
        "there is no such token",
        "`stockade principals describe NAME` shows the principal's tokens.",
    ),
    ("NOT_FOUND", "session"): Text(
        "there is no live session with this handle",
        "`stockade sessions list` shows the live sessions with their handles.",
    ),
    ("PERMISSION_DENIED", "foreign_host"): Text(
        "the host {host} is not this node's, so a page in a browser may have sent the request (DNS rebinding)",
        "If clients reach this node by that name, list it in `allowed_hosts` of node.toml.",
    ),
    ("PERMISSION_DENIED", "foreign_page"): Text(
        "a page of the origin {origin} in a browser sent the request, and only this node's own pages may",
        "If that is a proxy's name for this node, list it in `allowed_hosts` of node.toml. Programs send no Origin.",
    ),
    ("PRODUCER_FENCED", "superseded"): Text(
        "a grant or a fence came later: the epoch is {current_epoch} here, above the token's",
        _LOST,
    ),
    ("PRODUCER_FENCED", "wrong_epoch"): Text(
        "the grant is yours and in force, but its epoch on this partition is {current_epoch}, not the token's",
        "Send the epoch that the grant has on this partition (`epochs` in the answer to acquire).",
    ),
    ("PRODUCER_FENCED", "other_session"): Text(
        "the epoch {current_epoch} is the one in force, but the token's grant or session is not the one that has it",
        _LOST,
    ),
    ("PRODUCER_FENCED", "slot_free"): Text(
        "your grant has ended, and no grant holds the partition alone",
        "Acquire again; with resume_epoch the epoch stays, unless the partition's has grown meanwhile. `outcome` "
        "says whether the batch is stored.",
    ),
    ("PRODUCER_FENCED", "evicted"): Text(
        "this grant or ticket was evicted: by a grant with ExclusiveWithFencing, by an operator's fence, or "
        "with its topic or session",
        "Acquire again only if this writer shall take over. `stockade grants describe TOPIC` shows who came.",
    ),
    ("PRODUCER_FENCED", "not_holder"): Text(
        "this grant or ticket belongs to another session",
        "Use the session that acquired it.",
    ),
    ("PRODUCER_FENCED", "identity"): Text(
        "a newer instance of this producer was started under the same name, or an operator fenced it: the epoch is "
        "{current_epoch}",
        "Stop this instance, or give each instance a producer name of its own. `stockade producers status "
        "NAME` shows the epoch.",
    ),
    ("PRODUCER_BUSY", "exclusive_present"): Text(
        "{writer} holds the slot ({holder[mode]})",
        "Wait until it leaves (mode WaitForExclusive), or take its place (mode ExclusiveWithFencing): its writes are "
        "refused then. `stockade grants list TOPIC` shows all holders.",
        cli="To take its place: --mode ExclusiveWithFencing (`stockade produce`: --fencing). `stockade topics "
        "trim` has to wait; a shorter retention (`stockade topics alter`) has not.",
    ),
    ("PRODUCER_BUSY", "shared_present"): Text(
        "{writer} shares the slot",
        "Acquire a Shared grant, wait until all have left (mode WaitForExclusive), or take their place (mode"
        " ExclusiveWithFencing). `stockade grants list TOPIC` shows all holders.",
    ),
    ("PRODUCER_BUSY", "waiters_present"): Text(
        "no grant is in the way, but {queue_len} tickets that wait for the slot come first",
        "Queue up behind them (mode WaitForExclusive), or take the slot and fail their tickets (mode "
        "ExclusiveWithFencing).",
    ),
    ("OUT_OF_ORDER_SEQUENCE_NUMBER", "gap"): Text(
        "sequence numbers are missing: {expected_seq} comes next, and {last_seq} was stored last",
        "Send the batches before this one first. If none is under way, one is lost: ask for a new epoch and "
        "begin at 0.",
    ),
    ("OUT_OF_ORDER_SEQUENCE_NUMBER", "overlap"): Text(
        "some of these sequence numbers are stored, and none of the batches remembered has just these: {expected_seq} "
        "comes next",
        "Send a batch again exactly as it was sent first, with the same bounds. If you did, it is stored: a topic with"
        " strict_sequence recognises a producer's last five batches on a partition alone.",
    ),
    ("OUT_OF_ORDER_SEQUENCE_NUMBER", "new_epoch"): Text(
        "a new epoch begins at sequence number 0, and this partition has stored nothing of it",
        "Begin at 0 on each partition, and add each batch's number of records.",
    ),
    ("OUT_OF_ORDER_SEQUENCE_NUMBER", "no_state"): Text(
        "the partition has stored nothing of this producer, so sequence number 0 comes first",
        "Begin at 0 on each partition, and add each batch's number of records.",
    ),
}


def text_of(code: str, reason: object) -> Text:
    """The text of a code with this ``reason``, if it has one of its own; otherwise the text of the code."""
    return BY_REASON.get((code, str(reason))) or BY_CODE.get(code, NO_TEXT)
