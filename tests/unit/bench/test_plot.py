"""The benchmark's pictures are SVG that any reader shows."""

import itertools
from xml.etree import ElementTree

import pytest
from figures import Quartiles
from plot import COLORS, COLORS_DARK, HEIGHT, LABEL_PX_MIN, WIDTH, plot, short

SVG = "{http://www.w3.org/2000/svg}"


def line(*values: float) -> dict[int, Quartiles]:
    return {4**number: Quartiles(value * 0.9, value, value * 1.1) for number, value in enumerate(values)}


def drawn(lines: dict[str, dict[int, Quartiles]]) -> ElementTree.Element:
    return ElementTree.fromstring(plot("Producers & more", "records/s", lines))


def test_each_line_has_its_points_whiskers_and_name() -> None:
    picture = drawn({"Stockade": line(10, 20, 30), "a < b": line(5, 5, 5)})
    assert len(picture.findall(f"{SVG}polyline")) == 2
    assert len(picture.findall(f"{SVG}circle")) == 6
    whiskers = [each for each in picture.findall(f"{SVG}line") if "whisker" in each.get("class", "")]
    assert len(whiskers) == 6
    texts = [each.text for each in picture.iter(f"{SVG}text")]
    assert {"Stockade", "a < b", "1", "4", "16", "Producers & more, records/s"} <= set(texts)


def test_a_greater_figure_is_higher_and_all_points_are_inside() -> None:
    picture = drawn({"up": line(1, 500, 120_000)})
    heights = [float(circle.get("cy", "")) for circle in picture.findall(f"{SVG}circle")]
    assert heights == sorted(heights, reverse=True)
    assert all(0 < y < HEIGHT for y in heights)
    assert all(0 < float(circle.get("cx", "")) < WIDTH for circle in picture.findall(f"{SVG}circle"))


def test_names_of_lines_that_end_together_do_not_cover_each_other() -> None:
    picture = drawn({f"system {number}": line(100, 100) for number in range(6)})
    names = [each for each in picture.iter(f"{SVG}text") if "name" in each.get("class", "")]
    heights = sorted(float(each.get("y", "")) for each in names)
    assert len(heights) == 6
    assert all(below - above >= LABEL_PX_MIN - 0.1 for above, below in itertools.pairwise(heights))


def test_a_system_without_partitions_is_a_level_over_all_numbers() -> None:
    picture = drawn({"many": line(1, 2), "etcd": line(3)})
    assert sum("level" in each.get("class", "") for each in picture.findall(f"{SVG}line")) == 1


def test_there_are_colors_for_light_and_for_dark_pages() -> None:
    text = plot("t", "u", {"a": line(1)})
    assert "prefers-color-scheme:dark" in text
    assert all(color in text for color in (*COLORS, *COLORS_DARK))


@pytest.mark.parametrize(("value", "text"), [(0.0, "0"), (2.35, "2.35"), (40.0, "40"), (125_000.0, "125k")])
def test_numbers_on_the_axis_are_short(value: float, text: str) -> None:
    assert short(value) == text
