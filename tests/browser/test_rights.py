"""A person logs in with a token, which stays in the tab, and is offered what it may do and nothing else."""

from collections.abc import Iterator

import pytest
from integration.api import call, expect
from selenium import webdriver

from stockade.cli.local_cluster.cluster import LocalCluster
from stockade.cluster.access.principals import new_token

from .looking import Console

ADMIN, READER = new_token(), new_token()
PRINCIPALS = f"""
principals = [
    {{ name = "ann", rights = ["all"], tokens = [{{ hash = "{ADMIN.hash}" }}] }},
    {{ name = "rita", rights = ["read topic:orders"], tokens = [{{ hash = "{READER.hash}" }}] }},
]
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("guarded")
    with LocalCluster(folder, nodes_count=1, port_base=0, settings=PRINCIPALS) as cluster:
        node = f"http://{cluster.nodes[0].http}"
        for name in ("orders", "secret"):
            headers = {"Authorization": f"Bearer {ADMIN.token}"}
            expect(201, call("POST", f"{node}/v1/topics", {"name": name}, headers=headers))
        yield node


@pytest.fixture
def guarded(driver: webdriver.Chrome, url: str) -> Iterator[Console]:
    console = Console(driver, url)
    console.reset()
    yield console
    console.check_log()


def log_in(console: Console, token: str) -> None:
    console.driver.get(f"{console.url}/#/topics")
    console.sees("Log in to this cluster", ".login")
    console.fill("Token", token)
    console.press("Log in")


def test_without_a_token_there_is_a_form_and_a_wrong_one_is_refused(guarded: Console) -> None:
    log_in(guarded, "wrong")
    guarded.until(lambda: guarded.find(".login [role=alert]"), "a refusal")
    guarded.picture("login")
    assert guarded.findings() == []


def test_who_may_read_a_topic_is_offered_no_act_and_no_other_topic(guarded: Console) -> None:
    log_in(guarded, READER.token)
    guarded.sees("orders")
    assert "secret" not in guarded.text("main")
    assert "Create a topic" not in guarded.text("body")
    assert guarded.text("nav[aria-label=Views]").split("\n") == ["Overview", "Topics", "Cluster"]
    guarded.driver.get(f"{guarded.url}/#/topics/orders")
    guarded.sees("orders/0")
    assert [each.text for each in guarded.find(".page-head button")] == []
    guarded.sees("rita", ".side-bar")
    guarded.driver.get(f"{guarded.url}/#/sessions")
    guarded.sees("This is not yours to see")
    guarded.picture("reader")
    assert guarded.findings() == []


def test_who_may_everything_is_offered_everything(guarded: Console) -> None:
    log_in(guarded, ADMIN.token)
    guarded.sees("secret")
    guarded.driver.get(f"{guarded.url}/#/topics/secret")
    guarded.until(lambda: len(guarded.find(".page-head button")) == 3, "three acts")


def test_the_token_is_in_the_tab_and_nowhere_else_and_logging_out_forgets_it(guarded: Console) -> None:
    log_in(guarded, ADMIN.token)
    guarded.sees("secret")
    kept = "return [JSON.stringify(localStorage), document.cookie, location.href, document.documentElement.outerHTML]"
    assert not [place for place in guarded.script(kept) if ADMIN.token in place]
    assert ADMIN.token in guarded.script("return Object.values(sessionStorage)")
    guarded.driver.switch_to.new_window("tab")
    guarded.driver.get(f"{guarded.url}/#/topics")
    guarded.sees("Log in to this cluster", ".login")
    guarded.driver.close()
    guarded.driver.switch_to.window(guarded.driver.window_handles[0])
    guarded.press("Log out")
    guarded.sees("Log in to this cluster", ".login")
    assert guarded.script("return sessionStorage.length") == 0
