"""The console is served whole, from this node alone, and a browser keeps what cannot change."""

import re
from pathlib import PurePosixPath

import pytest

from stockade.http_api.handlers import console

from ..conversation import Answer, Conversation, run

GZIP = {"Accept-Encoding": "gzip, deflate, br"}
SOURCES = {path.relative_to(console.FOLDER).as_posix(): path.read_bytes() for path in console.FOLDER.rglob("*.*")}
IMPORT = re.compile(r'^import\b[^;"]*"([^"]+)";$', re.MULTILINE)


async def page_of(node: Conversation) -> Answer:
    return await node.call("GET", "/", None, {"Accept": "text/html"})


def test_the_page_and_all_that_it_names_come_from_the_node() -> None:
    async def test(node: Conversation) -> None:
        page = await page_of(node)
        named = re.findall(r'(?:src|href)="([^"]+)"', page.body.decode())
        assert len(named) > 10
        for path in named:
            answer = await node.call("GET", path, valid=False)
            assert (answer.status, answer.headers["X-Content-Type-Options"]) == (200, "nosniff"), path

    run(test)


def test_console_files_are_cached_for_good_and_the_page_is_revalidated() -> None:
    async def test(node: Conversation) -> None:
        assert (await page_of(node)).headers["Cache-Control"] == "no-cache"
        build = console.build().name
        for name, body in SOURCES.items():
            if name == console.PAGE:
                continue
            answer = await node.call("GET", f"/console/{build}/{name}", valid=False)
            assert answer.headers["Cache-Control"] == f"public, max-age={console.KEEP_S}, immutable"
            assert (answer.headers["Content-Type"], answer.body) == (
                console.MEDIA_TYPES[PurePosixPath(name).suffix],
                body,
            )

    run(test)


def test_a_browser_that_takes_gzip_gets_it() -> None:
    async def test(node: Conversation) -> None:
        path = f"/console/{console.build().name}/vendor/preact.js"
        answer = await node.call("GET", path, None, GZIP, valid=False)
        assert (answer.headers["Content-Encoding"], answer.headers["Vary"]) == ("gzip", "Accept-Encoding")
        assert answer.body == SOURCES["vendor/preact.js"], "as aiohttp's client unpacks it"
        assert int(answer.headers["Content-Length"]) < len(answer.body) / 2

    run(test)


@pytest.mark.parametrize("coding", ["gzip;q=0", "br, GZIP; q=0.000", "identity", "*;q=0, gzip;q=bad", "gzipped"])
def test_a_browser_that_excludes_gzip_does_not_get_it(coding: str) -> None:
    async def test(node: Conversation) -> None:
        path = f"/console/{console.build().name}/vendor/preact.js"
        answer = await node.call("GET", path, None, {"Accept-Encoding": coding}, valid=False)
        assert "Content-Encoding" not in answer.headers

    run(test)


@pytest.mark.parametrize(
    "name",
    ["nothing.js", "..%2fopenapi.json", "..%2f..%2f__init__.py", "index.html", "vendor/.."],
)
def test_a_path_that_names_no_file_of_the_console_leads_nowhere(name: str) -> None:
    async def test(node: Conversation) -> None:
        answer = await node.call("GET", f"/console/{console.build().name}/{name}", valid=False)
        assert (answer.status, answer.json["code"]) == (404, "NOT_FOUND")

    run(test)


def test_files_of_another_build_are_never_mixed_with_this_one() -> None:
    async def test(node: Conversation) -> None:
        answer = await node.call("GET", "/console/0123456789abcdef/app.js", valid=False)
        assert (answer.status, answer.json["code"]) == (404, "NOT_FOUND")

    run(test)


def test_modules_import_each_other_and_nothing_else() -> None:
    modules = {name: body.decode() for name, body in SOURCES.items() if name.endswith(".js")}
    for name, text in modules.items():
        if name.startswith("vendor/"):
            continue
        for wanted in IMPORT.findall(text):
            place = (console.FOLDER / name).parent / wanted
            assert wanted.startswith("."), f"{name} imports {wanted}, which a browser cannot find"
            assert place.resolve().relative_to(console.FOLDER.resolve()).as_posix() in modules, f"{name}: {wanted}"


def test_a_module_is_imported_or_it_is_the_first() -> None:
    modules = {name: body.decode() for name, body in SOURCES.items() if name.endswith(".js")}
    used = {
        ((console.FOLDER / name).parent / wanted).resolve().relative_to(console.FOLDER.resolve()).as_posix()
        for name, text in modules.items()
        if not name.startswith("vendor/")
        for wanted in IMPORT.findall(text)
    }
    assert set(modules) - used == {"app.js"}


def test_every_library_has_its_licence_beside_it() -> None:
    vendored = {PurePosixPath(name).stem for name in SOURCES if name.startswith("vendor/")}
    licences = {PurePosixPath(name).stem for name in SOURCES if name.endswith(".LICENSE")}
    assert vendored == licences | {"preact"}
    assert "htm" in licences, "preact.js has htm in it"


def test_a_browser_that_opens_the_console_first_gets_little() -> None:
    """So that the first paint waits for nothing, also far from the node."""
    sizes = [len(file.gzipped or file.body) for name, file in console.build().files.items() if "LICENSE" not in name]
    assert sum(sizes) < 200_000


def test_own_modules_have_lines_that_fit_and_files_that_are_one_idea() -> None:
    for name, body in SOURCES.items():
        if name.endswith((".js", ".css")) and not name.startswith("vendor/"):
            assert len(body.splitlines()) <= 600, name
