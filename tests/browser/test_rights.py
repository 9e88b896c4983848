"""A person logs in with a token, which stays in the tab, and is offered what it may do and nothing else."""

import base64
import json
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
    assert guarded.text("nav[aria-label=Views]").split("\n") == ["Overview", "Topics", "Cluster", "Reports", "Runbooks"]
    guarded.driver.get(f"{guarded.url}/#/topics/orders")
    guarded.sees("orders/0")
    guarded.driver.get(f"{guarded.url}/#/topics/orders/0")
    guarded.sees("Refused writes need the right read cluster.")
    guarded.driver.get(f"{guarded.url}/#/topics/orders")
    guarded.sees("Configuration")
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


def test_a_token_that_is_taken_back_leads_to_the_form_and_a_new_one_back_to_the_view(guarded: Console) -> None:
    admin = {"Authorization": f"Bearer {ADMIN.token}"}
    body = {"rights": ["read topic:orders", "read cluster"]}
    expect(201, call("PUT", f"{guarded.url}/v1/principals/temp", body, headers=admin))
    made = expect(201, call("POST", f"{guarded.url}/v1/principals/temp/tokens", {}, headers=admin))
    log_in(guarded, made["token"])
    guarded.driver.get(f"{guarded.url}/#/topics/orders/0")
    guarded.sees("orders/0", "h1")
    expect(204, call("DELETE", f"{guarded.url}/v1/principals/temp", headers=admin))
    guarded.sees("Log in to this cluster", ".login")
    assert guarded.find(".login [role=alert]")
    guarded.fill("Token", ADMIN.token)
    guarded.press("Log in")
    guarded.sees("orders/0", "h1")


def test_a_json_web_token_tells_when_it_ends(guarded: Console) -> None:
    log_in(guarded, ADMIN.token)
    guarded.sees("secret")
    claims = base64.urlsafe_b64encode(json.dumps({"sub": "ann", "exp": 4_102_444_800}).encode()).decode().rstrip("=")
    module = "document.querySelector('script[type=module]').src.replace('app.js', 'parts/api.js')"
    ends = f"import({module}).then(api => arguments[1](api.tokenEnds(arguments[0])))"
    assert guarded.driver.execute_async_script(ends, f"e30.{claims}.c2ln") == 4_102_444_800_000
    assert guarded.driver.execute_async_script(ends, ADMIN.token) is None
