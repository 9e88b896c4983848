"""What a page does when its node refuses, when a view fails, and when a principal loses its token."""

from .looking import Console

REFUSED = """
const detail = 'no leader of the controller is known';
const problem = {code: arguments[1], detail, type: '/docs/problems#' + arguments[1]};
window.trueFetch ??= window.fetch;
window.fetch = (url, options) => String(url).startsWith(arguments[2]) && (options?.method ?? 'GET') === 'GET'
  ? Promise.resolve(new Response(JSON.stringify(problem), {status: arguments[0]}))
  : window.trueFetch(url, options);
"""
HEALED = "window.fetch = window.trueFetch"


def test_what_is_refused_now_stays_as_it_was_and_the_page_says_so(console: Console) -> None:
    console.open("topics", "Topics")
    console.sees("orders")
    console.script(REFUSED, 503, "LEADER_NOT_AVAILABLE", "/v1/topics")
    console.sees("LEADER_NOT_AVAILABLE", "body")
    console.sees("partly old", ".top-bar")
    console.sees("orders")
    console.picture("partly-old")
    assert console.findings() == []
    console.script(REFUSED, 429, "THROTTLING_QUOTA_EXCEEDED", "/v1/topics")
    console.sees("THROTTLING_QUOTA_EXCEEDED", "body")
    console.script(HEALED)
    console.sees("live", ".top-bar")
    console.until(lambda: "THROTTLING" not in console.text("body"), "the banner is gone")
    console.sees("orders")


def test_a_view_without_an_answer_shows_the_refusal_and_what_to_do(console: Console) -> None:
    console.open("", "Overview")
    console.script(REFUSED, 503, "LEADER_NOT_AVAILABLE", "/v1/sessions")
    console.keys("gs")
    console.sees("LEADER_NOT_AVAILABLE no leader of the controller is known")
    console.button("What to do next", "main")
    console.script(HEALED)
    console.until(lambda: console.find("tbody tr"), "the sessions")


def test_a_view_that_fails_says_so_and_the_others_go_on(console: Console) -> None:
    console.open("", "Overview")
    console.script(
        "window.trueFetch ??= window.fetch; window.fetch = (url, options) => String(url).startsWith('/v1/groups')"
        " ? Promise.resolve(new Response('{\"groups\": 7}')) : window.trueFetch(url, options)"
    )
    console.keys("gg")
    console.sees("A fault of the console")
    console.keys("gt")
    console.until(lambda: console.text("h1") == "Topics", "another view")
    console.driver.get_log("browser")
