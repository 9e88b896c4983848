"""The site that `make docs` has built: it loads nothing from other servers, and its links lead somewhere."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[2]
SITE = ROOT / "site"
LOADS = {
    "script": ("src",),
    "link": ("href",),
    "img": ("src", "srcset"),
    "iframe": ("src",),
    "source": ("src", "srcset"),
    "video": ("src", "poster"),
    "object": ("data",),
}
"""Attributes by which a page makes the browser load something; a link that the reader follows is none of them."""
ELSEWHERE = re.compile(r"\s*(?:https?:)?//")
IN_STYLES = re.compile(r"(?:@import\s+|url\()\s*['\"]?((?:https?:)?//[^'\")\s]+)")


class Page(HTMLParser):
    """What a page loads, where it links to, and the ids that links can lead to."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.classes: set[str] = set()
        self.palettes: list[str] = []
        self.labels: set[str] = set()
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.loaded += [values[name] for name in LOADS.get(tag, ()) if name in values]
        self.links += [values["href"]] if tag == "a" and "href" in values else []
        self.ids |= {values[name] for name in ("id", "name") if name in values}
        self.classes |= set(values.get("class", "").split())
        self.labels |= {values["for"]} if tag == "label" and "for" in values else set()
        self.palettes += [values["data-md-color-media"]] if tag == "input" and values.get("name") == "__palette" else []


def pages() -> Iterator[tuple[str, Page]]:
    for file in sorted(SITE.rglob("*.html")):
        yield file.relative_to(SITE).as_posix(), Page(file.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def site() -> dict[str, Page]:
    assert (SITE / "index.html").is_file(), "run `make docs`"
    return dict(pages())


def test_no_page_loads_anything_from_another_server(site: dict[str, Page]) -> None:
    found = [f"{name} loads {url}" for name, page in site.items() for url in page.loaded if ELSEWHERE.match(url)]
    for file in [*SITE.rglob("*.css"), *SITE.rglob("*.svg"), *SITE.rglob("*.html")]:
        urls = IN_STYLES.findall(file.read_text(encoding="utf-8"))
        found += [f"{file.relative_to(SITE)} loads {url}" for url in urls]
    assert not found


def test_no_page_makes_the_theme_fetch_a_library(site: dict[str, Page]) -> None:
    """The theme's script gets mermaid from another server when a page has a diagram of it."""
    assert not [name for name, page in site.items() if "mermaid" in page.classes]


def test_the_colours_of_a_page_follow_the_system_until_a_reader_chooses_others(site: dict[str, Page]) -> None:
    """The theme's script remembers the place of the first visit's palette: unless that follows the system, for good."""
    ways = ["(prefers-color-scheme)", "(prefers-color-scheme: light)", "(prefers-color-scheme: dark)"]
    assert {tuple(page.palettes) for page in site.values()} == {tuple(ways)}
    switches = {f"__palette_{place}" for place in range(len(ways))}
    assert [name for name, page in site.items() if not switches <= page.labels] == []


def test_every_link_within_the_site_leads_to_a_file_and_a_place_in_it(site: dict[str, Page]) -> None:
    broken = []
    for name, page in site.items():
        if name == "404.html":  # its links begin at the root of a server
            continue
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (SITE / name).parent / unquote(parts.path) if parts.path else SITE / name
            target = target / "index.html" if target.is_dir() else target
            known = site.get(target.resolve().relative_to(SITE).as_posix())
            if not target.is_file() or (parts.fragment and known and unquote(parts.fragment) not in known.ids):
                broken.append(f"{name} links to {link}")
    assert not broken


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_the_pages_beside_the_site_link_to_files(page: str) -> None:
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", (ROOT / page).read_text(encoding="utf-8"))
    assert links
    assert not [link for link in links if not urlsplit(link).scheme and not (ROOT / link).is_file()]


def test_search_works_in_pages_that_were_opened_from_a_folder(site: dict[str, Page]) -> None:
    """There a page may neither fetch the index, so that is a script, nor start a Worker, so a frame stands in."""
    assert "assets/iframe-worker.js" in site["index.html"].loaded
    assert (SITE / "assets" / "iframe-worker.js").is_file()
    assert (SITE / "search" / "search_index.js").read_text(encoding="utf-8").startswith("var __index = {")


@pytest.mark.parametrize(
    ("html", "loaded"),
    [
        ('<script src="https://cdn/x.js"></script>', ["https://cdn/x.js"]),
        ('<link rel="stylesheet" href="//fonts/css">', ["//fonts/css"]),
        ('<img src="a.svg">', []),
        ('<a href="https://github.com">', []),
    ],
)
def test_files_that_a_page_loads_from_elsewhere_are_found(html: str, loaded: list[str]) -> None:
    assert [url for url in Page(html).loaded if ELSEWHERE.match(url)] == loaded


@pytest.mark.parametrize(
    ("css", "found"),
    [
        ("@import 'https://fonts/css'", ["https://fonts/css"]),
        ("a { src: url(//cdn/x.woff2) }", ["//cdn/x.woff2"]),
        ("a { src: url(x.woff2); b: url(data:image/svg+xml) }", []),
    ],
)
def test_files_that_a_style_loads_from_elsewhere_are_found(css: str, found: list[str]) -> None:
    assert IN_STYLES.findall(css) == found
