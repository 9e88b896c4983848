"""The codec of all messages between nodes: length-capped binary frames.

A frame is: length of the rest (u32), kind (u8), group id (u32), body; all little-endian. A group id that is wider has
its low half there, its high half (u32) before the body, and the bit WIDE in the kind: such groups exist from feature
level 2 on, at which all nodes know WIDE. Frames that belong to no group (calls, hellos, pings) carry group 0.

Decoding never executes anything that the bytes name, nor allocates beyond the caps below. A frame that ``encode``
cannot have produced raises InvalidFrame, and no other exception.

**Versions.** A node speaks PROTOCOL_VERSION and PROTOCOL_OLDEST, which is that of the release before; each connection
has the version in which its hellos were exchanged (handshake.py). To add a kind of frame, or to change one: raise
PROTOCOL_VERSION, unless that was done since the last release; add the class, its kind and its codec; and name the
version in ``SINCE``. Code that builds such a frame asks first, by ``ports.speaks(node_id, version)`` in the core and
``Transport.speaks`` elsewhere; if the answer is no, it sends what the older version has. The answer may change whenever
the connection does, so ask for each frame. ``Transport.send`` refuses a frame that the other end does not know.
"""

import struct
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import accumulate, pairwise
from itertools import count as count_from
from typing import Any

import msgspec

from ..messages import (
    APPENDS_MAX,
    AckMany,
    AppendAck,
    AppendEntries,
    AppendMany,
    Call,
    Commit,
    Hello,
    Message,
    Offer,
    OpenStream,
    Ping,
    PreVote,
    PreVoteReply,
    Quiesce,
    Refusal,
    Reply,
    RequestVote,
    RolledBack,
    Software,
    TimeoutNow,
    VoteReply,
    Wake,
)

PROTOCOL_VERSION = 7
PROTOCOL_OLDEST = 6
"""A node speaks these two versions, and no other."""
LEVEL_PROTOCOLS = {1: 6, 2: 7}
"""Feature level of the cluster -> the oldest protocol that its members speak. A level that is not here has the protocol
of the next lower one that is.
"""
SINCE: dict[type[Any], int] = {AppendMany: 7, AckMany: 7}
"""Kinds of messages -> the protocol that brought them. Every version that a node speaks knows the other kinds."""
FRAME_BYTES_MAX = 32 << 20
"""Longest frame, header included."""
ENTRIES_MAX = 65_536
"""Most entries in one AppendEntries."""
U64_MAX = (1 << 64) - 1


class InvalidFrame(Exception):
    """Not a frame of this protocol, or a message that does not fit in one."""


_Pieces = list[bytes]
"""The body of a frame to be sent, as pieces to be joined."""
_Body = bytes | memoryview
"""The body of a frame that has arrived."""
_SHORT_BYTES = 1024
"""The body of a frame of at most this length is copied before it is decoded: a view of it costs more."""
_PART_BYTES = 4096
"""Parts of a frame are joined up to this length as they arrive: each separate part takes a hundred bytes more."""
_HEADER = struct.Struct("<IBI")
WIDE = 0x80
_HIGH = struct.Struct("<I")
_U32_MAX = (1 << 32) - 1
_LENGTH_BYTES = 4
_APPEND = struct.Struct("<QQQQQI")
_MANY = struct.Struct("<QI")
_CALL = struct.Struct("<Q")
_REPLY = struct.Struct("<Q?")
_HELLO = struct.Struct("<HBBQQQ")
_SOFTWARE_SINCE, _HELLO_MORE = 7, struct.Struct("<HHB")
"""A hello of this version or a newer one ends with oldest and newest feature level, and the software's version."""
_VERSION = struct.Struct("<H")


@lru_cache(maxsize=256)
def _columns(count: int) -> struct.Struct:
    """The layout of the terms, then the lengths, of ``count`` entries. One call packs all of them, several times faster
    than one by one.
    """
    return struct.Struct(f"<{count}Q{count}I")


def _encode_append(message: AppendEntries) -> _Pieces:
    first, entries = message.prev_index + 1, message.entries
    if len(entries) > ENTRIES_MAX:
        raise InvalidFrame(f"{len(entries)} entries in one message, at most {ENTRIES_MAX} are allowed")
    if [index for index, _, _ in entries] != list(range(first, first + len(entries))):
        raise InvalidFrame(f"the entries after {message.prev_index} are not consecutive")
    payloads = [payload for _, _, payload in entries]
    head = _APPEND.pack(
        message.term, message.commit_index, message.prev_index, message.prev_term, message.round, len(entries)
    )
    columns = _columns(len(entries)).pack(*[term for _, term, _ in entries], *map(len, payloads))
    return [head, columns, *payloads]


def _decode_append(body: _Body) -> AppendEntries:
    term, commit_index, prev_index, prev_term, round_, count = _APPEND.unpack_from(body)
    if count > ENTRIES_MAX:
        raise InvalidFrame(f"{count} entries in one message, at most {ENTRIES_MAX} are allowed")
    if prev_index + count > U64_MAX:
        raise InvalidFrame(f"{count} entries after {prev_index} would have indexes beyond u64")
    columns = _columns(count)
    values = columns.unpack_from(body, _APPEND.size)
    ends = list(accumulate(values[count:], initial=_APPEND.size + columns.size))
    if ends[-1] != len(body):
        raise InvalidFrame(f"entries end at byte {ends[-1]} of a message of {len(body)} bytes")
    payloads = [bytes(body[start:end]) for start, end in pairwise(ends)]
    entries = list(zip(count_from(prev_index + 1), values, payloads, strict=False))
    return AppendEntries(term, commit_index, prev_index, prev_term, round_, entries)


@lru_cache(maxsize=APPENDS_MAX)
def _many_columns(count: int) -> struct.Struct:
    """The layout of the columns of ``count`` messages: groups, terms, commit indexes, previous indexes and terms,
    rounds, lengths of entries.
    """
    return struct.Struct(f"<{6 * count}Q{count}I")


def _encode_append_many(message: AppendMany) -> _Pieces:
    groups = [group_id for group_id, _ in message.appends]
    appends = [append for _, append in message.appends]
    entries = [entry for append in appends for entry in append.entries]
    if len(appends) > APPENDS_MAX or len(set(groups)) < len(groups):
        raise InvalidFrame(f"messages to {len(groups)} groups, some perhaps twice; at most {APPENDS_MAX} are allowed")
    follows = [entry[:2] for entry in entries] == [(append.prev_index + 1, append.term) for append in appends]
    if not follows or any(len(append.entries) != 1 for append in appends):
        raise InvalidFrame("each message needs one entry, the next one, of its own term")
    payloads = [payload for _, _, payload in entries]
    columns = _many_columns(len(appends)).pack(
        *groups,
        *[append.term for append in appends],
        *[append.commit_index for append in appends],
        *[append.prev_index for append in appends],
        *[append.prev_term for append in appends],
        *[append.round for append in appends],
        *map(len, payloads),
    )
    return [_MANY.pack(message.number, len(appends)), columns, *payloads]


def _decode_append_many(body: _Body) -> AppendMany:
    number, count = _MANY.unpack_from(body)
    if count > APPENDS_MAX:
        raise InvalidFrame(f"{count} messages in one frame, at most {APPENDS_MAX} are allowed")
    columns = _many_columns(count)
    values = columns.unpack_from(body, _MANY.size)
    groups, terms, commits, prevs, prev_terms, rounds, lengths = (values[at * count :][:count] for at in range(7))
    if len(set(groups)) < count:
        raise InvalidFrame("two messages to one group in one frame")
    if U64_MAX in prevs:
        raise InvalidFrame(f"an entry after {U64_MAX} would have an index beyond u64")
    ends = list(accumulate(lengths, initial=_MANY.size + columns.size))
    if ends[-1] != len(body):
        raise InvalidFrame(f"entries end at byte {ends[-1]} of a message of {len(body)} bytes")
    payloads = [bytes(body[start:end]) for start, end in pairwise(ends)]
    entries = [[(prev + 1, term, payload)] for prev, term, payload in zip(prevs, terms, payloads, strict=True)]
    return AppendMany(
        number, list(zip(groups, map(AppendEntries, terms, commits, prevs, prev_terms, rounds, entries), strict=True))
    )


def _encode_ack_many(message: AckMany) -> _Pieces:
    count = len(message.silent)
    if count > APPENDS_MAX:
        raise InvalidFrame(f"{count} positions in one frame, at most {APPENDS_MAX} are allowed")
    return [_MANY.pack(message.number, count), struct.pack(f"<{count}I", *message.silent)]


def _decode_ack_many(body: _Body) -> AckMany:
    number, count = _MANY.unpack_from(body)
    if count > APPENDS_MAX or len(body) != _MANY.size + 4 * count:
        raise InvalidFrame(f"{count} positions in a message of {len(body)} bytes")
    return AckMany(number, list(struct.unpack_from(f"<{count}I", body, _MANY.size)))


def _encode_call(message: Call) -> _Pieces:
    return [_CALL.pack(message.call_id), message.payload]


def _decode_call(body: _Body) -> Call:
    (call_id,) = _CALL.unpack_from(body)
    return Call(call_id, bytes(body[_CALL.size :]))


def _encode_reply(message: Reply) -> _Pieces:
    return [_REPLY.pack(message.call_id, message.ok), message.payload]


def _decode_reply(body: _Body) -> Reply:
    call_id, ok = _REPLY.unpack_from(body)
    if body[_CALL.size] > 1:
        raise InvalidFrame(f"{body[_CALL.size]} is not a boolean")
    return Reply(call_id, bytes(body[_REPLY.size :]), ok)


def _encode_hello(message: Hello) -> _Pieces:
    cluster_id, node_id = message.cluster_id.encode(), message.node_id.encode()
    numbers = message.incarnation, message.session, message.began
    pieces = [_HELLO.pack(message.version, len(cluster_id), len(node_id), *numbers), cluster_id, node_id]
    if message.version >= _SOFTWARE_SINCE:
        software, version = message.software, message.software.version.encode()
        pieces += (_HELLO_MORE.pack(software.oldest, software.newest, len(version)), version)
    return pieces


def _decode_hello(body: _Body) -> Hello:
    (version,) = _VERSION.unpack_from(body)
    if not PROTOCOL_OLDEST <= version <= PROTOCOL_VERSION:
        return Hello(version, "", "", 0)
    _, cluster_bytes, node_bytes, incarnation, session, began = _HELLO.unpack_from(body)
    split = _HELLO.size + cluster_bytes
    end, software = split + node_bytes, Software()
    cluster_id, node_id = bytes(body[_HELLO.size : split]).decode(), bytes(body[split:end]).decode()
    if version >= _SOFTWARE_SINCE:
        *levels, version_bytes = _HELLO_MORE.unpack_from(body, end)
        start, end = end + _HELLO_MORE.size, end + _HELLO_MORE.size + version_bytes
        software = Software(bytes(body[start:end]).decode(), *levels)
    if end != len(body):
        raise InvalidFrame(f"its texts end at byte {end} of a hello of {len(body)} bytes")
    return Hello(version, cluster_id, node_id, incarnation, session, began, software)


def _encode_open_stream(message: OpenStream) -> _Pieces:
    return _encode_hello(message.hello)


def _decode_open_stream(body: _Body) -> OpenStream:
    return OpenStream(_decode_hello(body))


def _encode_refusal(message: Refusal) -> _Pieces:
    return [message.reason.encode()]


def _decode_refusal(body: _Body) -> Refusal:
    return Refusal(bytes(body).decode())


class _Fixed:
    """Codec of a message class whose fields are integers and booleans, packed in the order of its fields."""

    def __init__(self, message_class: type[Any], layout: str) -> None:
        self._class = message_class
        self._struct = struct.Struct("<" + layout)

    def encode(self, message: Any) -> _Pieces:
        return [self._struct.pack(*msgspec.structs.astuple(message))]

    def decode(self, body: _Body) -> Any:
        values = self._struct.unpack(body)
        if self._struct.pack(*values) != body:  # a byte for a boolean was neither 0 nor 1
            raise InvalidFrame(f"not the bytes of any {self._class.__name__}")
        return self._class(*values)


_FIXED = {
    AppendAck: (2, _Fixed(AppendAck, "Q?QQ")),
    PreVote: (3, _Fixed(PreVote, "QQQ")),
    PreVoteReply: (4, _Fixed(PreVoteReply, "Q?")),
    RequestVote: (5, _Fixed(RequestVote, "QQQ?")),
    VoteReply: (6, _Fixed(VoteReply, "Q?")),
    TimeoutNow: (7, _Fixed(TimeoutNow, "Q")),
    Ping: (12, _Fixed(Ping, "BQ")),
    Offer: (13, _Fixed(Offer, "QQQQQ")),
    Quiesce: (14, _Fixed(Quiesce, "QQ")),
    Wake: (15, _Fixed(Wake, "Q")),
    Commit: (16, _Fixed(Commit, "QQ")),
    RolledBack: (18, _Fixed(RolledBack, "Q")),
}
_ENCODERS: dict[type[Any], tuple[int, Callable[[Any], _Pieces]]] = {
    AppendEntries: (1, _encode_append),
    Call: (8, _encode_call),
    Reply: (9, _encode_reply),
    Hello: (10, _encode_hello),
    Refusal: (11, _encode_refusal),
    OpenStream: (17, _encode_open_stream),
    AppendMany: (19, _encode_append_many),
    AckMany: (20, _encode_ack_many),
    **{message_class: (kind, codec.encode) for message_class, (kind, codec) in _FIXED.items()},
}
_DECODERS: dict[int, Callable[[_Body], Message]] = {
    1: _decode_append,
    8: _decode_call,
    9: _decode_reply,
    10: _decode_hello,
    11: _decode_refusal,
    17: _decode_open_stream,
    19: _decode_append_many,
    20: _decode_ack_many,
    **{kind: codec.decode for kind, codec in _FIXED.values()},
}
assert _DECODERS.keys() == {kind for kind, _ in _ENCODERS.values()}


def encode(group_id: int, message: Message) -> bytes:
    """The frame of a message.

    Raises InvalidFrame if it is longer than FRAME_BYTES_MAX, has more than ENTRIES_MAX entries, if its entries are not
    consecutive, or if a field does not fit: u64 for the group, terms and indexes, 255 bytes of UTF-8 for ids.
    """
    kind, encoder = _ENCODERS[type(message)]
    try:
        pieces = encoder(message)
        if group_id > _U32_MAX:
            kind, group_id, high = kind | WIDE, group_id & _U32_MAX, _HIGH.pack(group_id >> 32)
            pieces = [high, *pieces]
        frame_bytes = _HEADER.size + sum(map(len, pieces))
        header = _HEADER.pack(frame_bytes - _LENGTH_BYTES, kind, group_id)
    except (struct.error, UnicodeEncodeError) as error:
        raise InvalidFrame(f"{type(message).__name__} does not fit in a frame: {error}") from error
    if frame_bytes > FRAME_BYTES_MAX:
        raise InvalidFrame(f"a frame of {frame_bytes} bytes, at most {FRAME_BYTES_MAX} are allowed")
    return b"".join((header, *pieces))


def _high(body: _Body) -> int:
    """The high half of a group id, at the start of the body. Raises struct.error, InvalidFrame."""
    (high,) = _HIGH.unpack_from(body)
    if not high:
        raise InvalidFrame("a group id of 32 bits in a frame for longer ones")
    return int(high)


class FrameReader:
    """Decodes a stream of bytes into messages. The entries of a long frame are copied once, and once more if the frame
    arrives in several parts.

    ``frame_bytes_max`` may be changed between messages: a peer that has not sent its hello may only send short frames.
    """

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._partial: list[bytes] = []
        self._partial_bytes = 0
        self._needed = _HEADER.size

    def feed(self, data: bytes) -> Iterator[tuple[int, Message]]:
        """Yield (group id, message) for each frame that ``data`` completes. Raises InvalidFrame at the first bad one;
        the reader must not be used after that.
        """
        if self._partial:
            if len(self._partial[-1]) + len(data) <= _PART_BYTES:
                self._partial[-1] += data
            else:
                self._partial.append(data)
            self._partial_bytes += len(data)
            if self._partial_bytes < self._needed:
                return
            data = b"".join(self._partial)
            self._partial.clear()
        position = 0
        while (needed := self._frame_bytes(data, position)) <= len(data) - position:
            _, kind, group_id = _HEADER.unpack_from(data, position)
            decoder = _DECODERS.get(kind & ~WIDE)
            if decoder is None:
                raise InvalidFrame(f"unknown kind of frame: {kind}")
            whole = data if needed <= _SHORT_BYTES else memoryview(data)
            body = whole[position + _HEADER.size : position + needed]
            try:
                if kind & WIDE:
                    group_id |= _high(body) << 32
                    body = body[_HIGH.size :]
                message = decoder(body)
            except (struct.error, UnicodeDecodeError) as error:
                raise InvalidFrame(f"malformed frame of kind {kind}: {error}") from error
            yield group_id, message
            position += needed
        if position < len(data):
            self._partial.append(data[position:])
        self._partial_bytes, self._needed = len(data) - position, needed

    @property
    def has_rest(self) -> bool:
        """Whether the beginning of a frame has arrived, and its rest has not."""
        return bool(self._partial)

    def _frame_bytes(self, data: bytes, position: int) -> int:
        """Bytes of the frame at ``position``; those of its header alone while the header is incomplete."""
        if len(data) - position < _HEADER.size:
            return _HEADER.size
        frame_bytes = _LENGTH_BYTES + int.from_bytes(data[position : position + _LENGTH_BYTES], "little")
        if not _HEADER.size <= frame_bytes <= self.frame_bytes_max:
            raise InvalidFrame(f"a frame of {frame_bytes} bytes, at most {self.frame_bytes_max} are allowed")
        return frame_bytes
