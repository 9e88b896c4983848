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
ATTENTION = """
const [changed, told] = arguments;
const answers = ['/v1/cluster', '/v1/nodes'].map(path => fetch(path).then(answer => answer.json()));
Promise.all([import(document.querySelector('link[href$="views/overview.js"]').href), ...answers]).then(
  ([view, cluster, {nodes}]) => told(view.attention(cluster, nodes.map(node => ({...node, ...changed})), [])),
  error => told([{text: String(error)}]));
"""
HEALED = "window.fetch = window.trueFetch"


def test_a_view_that_is_refused_for_now_stays_as_it_was_and_the_page_says_so(console: Console) -> None:
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
    console.script(REFUSED, 502, "NO_ANSWER", "/v1/topics")  # of a proxy, while its node starts
    console.sees("NO_ANSWER", "body")
    console.sees("orders")
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


def test_a_reading_that_was_asked_for_once_is_asked_for_again_when_it_was_refused_for_now(console: Console) -> None:
    """The log of a partition without a leader stayed a red line when it had one again."""
    console.open("topics/orders/1", "orders/1")
    console.script(REFUSED, 503, "LEADER_NOT_AVAILABLE", "/v1/topics/orders/partitions/1/tail")
    console.press("Log")
    console.sees("LEADER_NOT_AVAILABLE", "main")
    console.script(HEALED)
    console.sees("The log has no records here", "main")


MUTE = """
window.streams = [];
const [fetched, later] = [window.fetch, window.setTimeout];
window.setTimeout = (act, ms) => later(act, ms / 20);
window.fetch = (url, options) => {
  if (url !== '/v1/events') return fetched(url, options);
  const { signal } = options;
  window.streams.push(signal);
  const start = (body) => signal.addEventListener('abort', () => body.error(signal.reason));
  return Promise.resolve(new Response(new ReadableStream({ start })));
};
for (const hidden of [true, false]) {
  Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });
  document.dispatchEvent(new Event('visibilitychange'));
}
"""
"""The node's events end, and the connection stays, as of a process that is stopped; and time goes by faster."""


def test_a_stream_of_events_that_went_silent_gives_its_connection_back(console: Console) -> None:
    """A browser has six to a node: after five pauses of a node the page said for good that it did not answer."""
    console.open("", "Overview")
    console.script(MUTE)
    console.until(lambda: console.script("return window.streams.length > 2"), "another attempt")
    assert console.script("return window.streams.slice(0, 2).every(signal => signal.aborted)")


def test_topics_that_the_caller_may_see_no_longer_are_gone_from_the_page(console: Console) -> None:
    console.open("topics", "Topics")
    console.sees("orders")
    console.script(REFUSED, 403, "PERMISSION_DENIED", "/v1/topics")
    console.sees("This is not yours to see")
    assert "orders" not in console.text("main")
    console.script(HEALED)
    console.sees("orders")


def test_the_overview_says_how_the_cluster_is_when_no_controller_leads(console: Console) -> None:
    console.open("cluster", "Cluster")
    console.script(REFUSED, 503, "LEADER_NOT_AVAILABLE", "/v1/topics")
    console.keys("go")
    console.sees("All 3 nodes are up; its topics cannot be listed now")
    console.script(HEALED)
    console.sees("topics with")


def test_the_overview_says_that_a_node_refuses_the_files_of_its_certificate(console: Console) -> None:
    console.open("", "Overview")
    told = console.driver.execute_async_script(ATTENTION, {"refused_certificates": ["http"]})
    found = [each for each in told if each.get("runbook") == "StockadeCertificateRefused"]
    assert [each["kind"] for each in found] == ["bad"], told  # beside it may be what this machine is short of
    assert found[0]["text"].startswith("n1 refuses the files of its certificate for clients")


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
