from pathlib import Path

import pytest

from stockade.chaos.streams import stream as streams
from stockade.chaos.streams.stream import DataError, load_folder, plan_streams, split_lines


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"a\nb\n", [b"a", b"b"]),
        (b"a\r\nb", [b"a\r", b"b"]),
        (b"a\n\nb\n", [b"a", b"", b"b"]),
        (b"\n", [b""]),
        (b"\xff\x0c\x85", [b"\xff\x0c\x85"]),
    ],
)
def test_lines_are_the_bytes_between_line_feeds(content: bytes, lines: list[bytes]) -> None:
    assert split_lines(content) == lines


def test_the_records_are_shared_evenly_and_all_of_them() -> None:
    planned = plan_streams([("a", [b"1", b"2"]), ("b", [b"3"]), ("c", [b"4"])], 11)
    assert [(stream.partition, stream.records) for stream in planned] == [(0, 4), (1, 4), (2, 3)]


def test_a_stream_goes_over_its_file_in_rounds() -> None:
    (stream,) = plan_streams([("a", [b"1", b"2", b"3"])], 7)
    assert [stream.line(k) for k in range(7)] == [b"1", b"2", b"3", b"1", b"2", b"3", b"1"]
    assert (stream.rounds, stream.share(0.5)) == (7 / 3, 3)


def test_every_text_file_of_a_folder_is_data_but_its_papers_are_not(tmp_path: Path) -> None:
    for name in ("b.log", "a.txt", "LICENSE", "README.md", ".hidden"):
        (tmp_path / name).write_bytes(b"line\n")
    (tmp_path / "binary").write_bytes(b"a\0b\n")
    (tmp_path / "empty.log").write_bytes(b"")
    (tmp_path / "folder.log").mkdir()
    assert load_folder(tmp_path) == [("a.txt", [b"line"]), ("b.log", [b"line"])]


def test_a_folder_without_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no text file"):
        plan_streams(load_folder(tmp_path), 10)


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not a folder"):
        load_folder(tmp_path / "missing")


def test_fewer_records_than_files_are_refused() -> None:
    with pytest.raises(DataError, match="too few"):
        plan_streams([("a", [b"1"]), ("b", [b"1"])], 1)


def test_the_longest_line_taken_is_at_its_bound(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * streams.LINE_BYTES_MAX)
    assert len(load_folder(tmp_path)[0][1][0]) == streams.LINE_BYTES_MAX
    (tmp_path / "a").write_bytes(b"x" * (streams.LINE_BYTES_MAX + 1))
    with pytest.raises(DataError, match="line of"):
        load_folder(tmp_path)


def test_the_largest_file_and_the_most_files_are_at_their_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "FILE_BYTES_MAX", 4)
    monkeypatch.setattr(streams, "FILES_MAX", 2)
    for name in "ab":
        (tmp_path / name).write_bytes(b"1234")
    assert len(load_folder(tmp_path)) == 2
    (tmp_path / "c").write_bytes(b"1234")
    with pytest.raises(DataError, match="3 text files"):
        load_folder(tmp_path)
    (tmp_path / "c").write_bytes(b"12345")
    with pytest.raises(DataError, match="5 bytes"):
        load_folder(tmp_path)
