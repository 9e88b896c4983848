"""The codec: every message comes back as it was encoded, and no other bytes are ever accepted."""

import struct
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stockade.raft.messages import (
    APPENDS_MAX,
    AckMany,
    AppendAck,
    AppendEntries,
    AppendMany,
    Call,
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
from stockade.raft.net import codec
from stockade.raft.net.codec import FrameReader, InvalidFrame, encode

U64 = st.integers(0, (1 << 64) - 1)
U32 = st.integers(0, (1 << 32) - 1)
U16 = st.integers(0, (1 << 16) - 1)
GROUP = U32 | U64
"""A group's id is a topic's shifted by 16 bits, and a topic's is an index of the controller's log."""
ID = st.text(max_size=60)


@st.composite
def append_entries(draw: st.DrawFn) -> AppendEntries:
    prev_index = draw(st.integers(0, (1 << 64) - 100))
    contents = draw(st.lists(st.tuples(U64, st.binary(max_size=40)), max_size=20))
    entries = [(prev_index + 1 + i, term, payload) for i, (term, payload) in enumerate(contents)]
    return AppendEntries(draw(U64), draw(U64), prev_index, draw(U64), draw(U64), entries)


@st.composite
def append_many(draw: st.DrawFn) -> AppendMany:
    appends = []
    for group_id in draw(st.sets(GROUP, max_size=5)):
        prev_index, term = draw(st.integers(0, (1 << 64) - 2)), draw(U64)
        entries = [(prev_index + 1, term, draw(st.binary(max_size=40)))]
        appends.append((group_id, AppendEntries(term, draw(U64), prev_index, draw(U64), draw(U64), entries)))
    return AppendMany(draw(U64), appends)


MESSAGES: st.SearchStrategy[Message] = st.one_of(
    append_entries(),
    append_many(),
    st.builds(AckMany, U64, st.lists(U32, max_size=5)),
    st.builds(AppendAck, U64, st.booleans(), U64, U64),
    st.builds(Offer, U64, U64, U64, U64, U64),
    st.builds(PreVote, U64, U64, U64),
    st.builds(PreVoteReply, U64, st.booleans()),
    st.builds(RequestVote, U64, U64, U64, st.booleans()),
    st.builds(VoteReply, U64, st.booleans()),
    st.builds(Quiesce, U64, U64),
    st.builds(Wake, U64),
    st.builds(TimeoutNow, U64),
    st.builds(Call, U64, st.binary()),
    st.builds(Reply, U64, st.binary(), st.booleans()),
    st.builds(Hello, st.just(codec.PROTOCOL_VERSION), ID, ID, U64, U64, U64, st.builds(Software, ID, U16, U16)),
    st.builds(Hello, st.just(codec.PROTOCOL_OLDEST), ID, ID, U64, U64, U64),
    st.builds(Refusal, st.text()),
    st.builds(
        OpenStream,
        st.builds(Hello, st.just(codec.PROTOCOL_VERSION), ID, ID, U64, U64, U64, st.builds(Software, ID, U16, U16)),
    ),
    st.builds(Ping, st.integers(0, 255), U64),
    st.builds(RolledBack, U64),
)


def read(data: bytes) -> list[tuple[int, Message]]:
    return list(FrameReader().feed(data))


EMPTY = AppendEntries(1, 0, 0, 0, 0, [])


@given(st.lists(st.tuples(GROUP, MESSAGES), max_size=8), st.data())
def test_messages_come_back_however_the_stream_is_cut(sent: list[tuple[int, Message]], data: st.DataObject) -> None:
    stream = b"".join(encode(group_id, message) for group_id, message in sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    reader = FrameReader()
    received = []
    with patch.object(codec, "_SHORT_BYTES", data.draw(st.sampled_from([0, 64, 1024]))):  # longer ones are not copied
        for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
            received += list(reader.feed(stream[start:end]))
    assert received == sent


def test_messages_come_back_when_every_byte_arrives_alone() -> None:
    sent: list[tuple[int, Message]] = [
        (7, AppendEntries(3, 2, 1, 1, 9, [(2, 3, b"two"), (3, 3, b"")])),
        (0, Ping()),
        (8, TimeoutNow(4)),
    ]
    reader = FrameReader()
    received = []
    for byte in b"".join(encode(group_id, message) for group_id, message in sent):
        received += list(reader.feed(bytes([byte])))
    assert received == sent


def body_with_header(kind: int, body: bytes) -> bytes:
    return struct.pack("<IBI", 5 + len(body), kind, 1) + body


@given(st.one_of(st.integers(0, 255), st.integers(1, 20)), st.binary(max_size=120), st.sampled_from([0, 1024]))
def test_a_body_of_random_bytes_decodes_to_a_message_that_encodes_to_it_or_raises_invalid_frame(
    kind: int, body: bytes, short: int
) -> None:
    frame = body_with_header(kind, body)
    try:
        with patch.object(codec, "_SHORT_BYTES", short):
            received = read(frame)
    except InvalidFrame:
        return
    if not is_foreign_hello(received):
        assert b"".join(encode(group_id, message) for group_id, message in received) == frame


def is_foreign_hello(received: list[tuple[int, Message]]) -> bool:
    """Of a hello of another version, only the version is read."""
    [(_, message)] = received
    hello = message.hello if isinstance(message, OpenStream) else message
    return isinstance(hello, Hello) and hello.version not in {codec.PROTOCOL_OLDEST, codec.PROTOCOL_VERSION}


@given(st.binary(max_size=200))
def test_random_bytes_raise_nothing_but_frame_errors(data: bytes) -> None:
    try:
        received = read(data)
    except InvalidFrame:
        return
    assert sum(len(encode(group_id, message)) for group_id, message in received) <= len(data)


@given(MESSAGES, st.data())
def test_a_flipped_bit_never_raises_anything_but_a_frame_error(message: Message, data: st.DataObject) -> None:
    frame = bytearray(encode(1, message))
    bit = data.draw(st.integers(0, 8 * len(frame) - 1))
    frame[bit // 8] ^= 1 << bit % 8
    try:
        received = read(bytes(frame))
    except InvalidFrame:
        return
    assert received != [(1, message)]


ENTRY = struct.Struct("<QQQQQI")


def many(count: int, *columns: int, layout: str = "") -> bytes:
    return struct.pack("<QI" + layout, 1, count, *columns)


@pytest.mark.parametrize(
    "kind, body, why",
    [
        (200, b"", "unknown kind"),
        (1, b"", "malformed"),
        (1, ENTRY.pack(1, 1, 1, 1, 1, 1), "malformed"),
        (1, ENTRY.pack(1, 1, 1, 1, 1, codec.ENTRIES_MAX + 1), "at most 65536"),
        (1, ENTRY.pack(1, 1, (1 << 64) - 1, 1, 1, 1) + bytes(12), "beyond u64"),
        (1, ENTRY.pack(1, 1, 1, 1, 1, 1) + struct.pack("<QI", 1, 5) + b"four", "entries end at byte"),
        (1, ENTRY.pack(1, 1, 1, 1, 1, 1) + struct.pack("<QI", 1, 3) + b"four", "entries end at byte"),
        (2, struct.pack("<QBQQ", 1, 2, 3, 4), "not the bytes of any AppendAck"),
        (6, struct.pack("<QB", 1, 0) + b"x", "malformed"),
        (9, struct.pack("<QB", 1, 2), "not a boolean"),
        (10, struct.pack("<HBBQQQ", codec.PROTOCOL_OLDEST, 2, 2, 0, 0, 0) + b"abc", "texts end at byte"),
        (10, struct.pack("<HBBQQQ", codec.PROTOCOL_VERSION, 1, 1, 0, 0, 0) + b"abc", "malformed"),
        (10, struct.pack("<HBBQQQ", codec.PROTOCOL_VERSION, 1, 1, 0, 0, 0) + b"cn\1\0\2\0\3v1", "texts end at byte"),
        (10, struct.pack("<HBBQQQ", codec.PROTOCOL_VERSION, 1, 1, 0, 0, 0) + b"\xff\xff", "malformed"),
        (11, b"\xff", "malformed"),
        (19, b"", "malformed"),
        (19, many(APPENDS_MAX + 1), "at most 256"),
        (19, many(1), "malformed"),
        (19, many(1, 7, 3, 2, 1, 1, 9, 5, layout="6QI") + b"four", "entries end at byte"),
        (19, many(1, 7, 3, 2, (1 << 64) - 1, 1, 9, 0, layout="6QI"), "beyond u64"),
        (19, many(2, 7, 7, *[1] * 10, 0, 0, layout="12Q2I"), "two messages to one group"),
        (20, b"", "malformed"),
        (20, many(APPENDS_MAX + 1), "257 positions"),
        (20, many(2, 1, layout="I"), "2 positions"),
        (12, b"", "malformed"),
        (12, b"xx", "malformed"),
        (codec.WIDE | 7, b"", "malformed"),
        (codec.WIDE | 7, struct.pack("<IQ", 0, 1), "a group id of 32 bits in a frame for longer ones"),
    ],
)
def test_malformed_frames_are_refused_with_the_reason(kind: int, body: bytes, why: str) -> None:
    with pytest.raises(InvalidFrame, match=why):
        read(body_with_header(kind, body))


def test_a_group_of_32_bits_has_the_frame_that_older_nodes_know() -> None:
    assert encode((1 << 32) - 1, TimeoutNow(5)) == struct.pack("<IBIQ", 13, 7, (1 << 32) - 1, 5)
    assert encode(3 << 32 | 1, TimeoutNow(5)) == struct.pack("<IBIIQ", 17, codec.WIDE | 7, 1, 3, 5)


def test_of_a_hello_of_another_version_only_the_version_is_read() -> None:
    hello = body_with_header(10, struct.pack("<H", 77) + b"\xff of another age")
    assert read(hello) == [(1, Hello(77, "", "", 0))]


@pytest.mark.parametrize("length", [0, 4, codec.FRAME_BYTES_MAX - 3, (1 << 32) - 1])
def test_a_length_outside_the_cap_is_refused_before_the_body_arrives(length: int) -> None:
    with pytest.raises(InvalidFrame, match="at most"):
        read(struct.pack("<IBI", length, 1, 1))


def test_the_longest_frame_passes_and_one_byte_more_is_refused_by_the_sender() -> None:
    overhead = len(encode(1, Call(1, b"")))
    longest = Call(1, bytes(codec.FRAME_BYTES_MAX - overhead))
    assert read(encode(1, longest)) == [(1, longest)]
    with pytest.raises(InvalidFrame, match="at most"):
        encode(1, Call(1, longest.payload + b"x"))


def test_a_frame_that_comes_a_byte_at_a_time_is_kept_in_few_parts() -> None:
    """Each part took a hundred bytes of memory by itself, and one without bytes, as of half a TLS record, too."""
    frame, reader = encode(7, Call(1, bytes(100_000))), FrameReader()
    for at in range(len(frame) - 1):
        assert not list(reader.feed(frame[at : at + 1]))
        assert not list(reader.feed(b""))
    assert reader.has_rest
    assert len(reader._partial) <= len(frame) // codec._PART_BYTES + 1
    assert list(reader.feed(frame[-1:])) == [(7, Call(1, bytes(100_000)))]
    assert not reader.has_rest


def test_a_reader_takes_its_lower_cap_from_the_moment_it_is_set() -> None:
    frame = encode(1, Call(1, bytes(100)))
    reader = FrameReader(frame_bytes_max=len(frame) - 1)
    with pytest.raises(InvalidFrame, match="at most"):
        list(reader.feed(frame))
    reader = FrameReader(frame_bytes_max=len(frame))
    assert list(reader.feed(frame)) == [(1, Call(1, bytes(100)))]


def test_the_most_entries_pass_and_one_more_is_refused_by_the_sender() -> None:
    entries = [(1 + i, 1, b"") for i in range(codec.ENTRIES_MAX + 1)]
    most = AppendEntries(1, 0, 0, 0, 0, entries[:-1])
    assert read(encode(1, most)) == [(1, most)]
    with pytest.raises(InvalidFrame, match="at most"):
        encode(1, AppendEntries(1, 0, 0, 0, 0, entries))


@pytest.mark.parametrize(
    "group_id, message",
    [
        (1 << 64, Ping()),
        (-1, Ping()),
        (1, TimeoutNow(1 << 64)),
        (1, TimeoutNow(-1)),
        (1, AppendEntries(1, 0, 0, 0, 0, [(1, 1 << 64, b"")])),
        (1, AppendEntries(1, 0, 0, 0, 0, [(2, 1, b"")])),
        (1, AppendEntries(1, 0, 0, 0, 0, [(1, 1, b""), (3, 1, b"")])),
        (1, Hello(1, "c" * 256, "n", 0)),
        (0, AppendMany(1, [(1, AppendEntries(1, 0, 0, 0, 0, []))])),
        (0, AppendMany(1, [(1, AppendEntries(1, 0, 0, 0, 0, [(1, 1, b""), (1, 1, b"")])), (2, EMPTY)])),
        (1, Refusal("\ud800")),
        (0, AppendMany(1, [(1, AppendEntries(2, 0, 0, 0, 0, [(1, 1, b"")]))])),
        (0, AppendMany(1, [(1, AppendEntries(1, 0, 0, 0, 0, [(2, 1, b"")]))])),
        (0, AppendMany(1, [(1, AppendEntries(1, 0, 0, 0, 0, [(1, 1, b"")]))] * 2)),
        (0, AppendMany(1, [(n, AppendEntries(1, 0, 0, 0, 0, [(1, 1, b"")])) for n in range(APPENDS_MAX + 1)])),
        (0, AckMany(1, [0] * (APPENDS_MAX + 1))),
        (0, AckMany(1, [1 << 32])),
    ],
)
def test_a_field_beyond_its_range_is_refused_by_encode(group_id: int, message: Message) -> None:
    with pytest.raises(InvalidFrame):
        encode(group_id, message)
