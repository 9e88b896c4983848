"""A person logs in with a token, which stays in the tab, and is offered what it may do and nothing else."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from integration.api import call, expect
from jwt.algorithms import OKPAlgorithm
from selenium import webdriver

from stockade.cli.local_cluster.cluster import LocalCluster
from stockade.cluster.access.principals import new_token

from .looking import Console

ADMIN, READER, STRANGER = new_token(), new_token(), new_token()
PRINCIPALS = f"""
principals = [
    {{ name = "ann", rights = ["all"], tokens = [{{ hash = "{ADMIN.hash}" }}] }},
    {{ name = "nell", rights = ["own group:g"], tokens = [{{ hash = "{STRANGER.hash}" }}] }},
    {{ name = "rita", rights = ["read topic:orders"], subjects = ["corp:rita"], tokens = [
        {{ hash = "{READER.hash}" }}] }},
]
issuers = [{{ name = "corp", issuer = "https://idp.example.com", audience = "stockade", keys = "%s" }}]
"""
KEY = Ed25519PrivateKey.generate()
"""Of the identity provider."""


@pytest.fixture(scope="module")
def url(module_path: Path) -> Iterator[str]:
    keys = module_path / "keys.json"
    keys.write_text(json.dumps({"keys": [json.loads(OKPAlgorithm.to_jwk(KEY.public_key())) | {"kid": "1"}]}))
    with LocalCluster(module_path / "guarded", nodes_count=1, port_base=0, settings=PRINCIPALS % keys) as cluster:
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


def test_a_token_that_cannot_be_one_is_refused_and_leaves_the_form_there(guarded: Console) -> None:
    """No request could carry it: the page said that the node did not answer, and after a reload again."""
    log_in(guarded, "stk.abc\u2026xyz")
    guarded.sees("no token", ".login [role=alert]")
    assert guarded.findings() == []
    log_in(guarded, READER.token)
    guarded.sees("orders")


def test_a_reader_of_a_topic_is_offered_no_act_and_no_other_topic(guarded: Console) -> None:
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


def test_a_caller_who_may_not_see_the_cluster_is_not_told_that_all_is_well(guarded: Console) -> None:
    """Partitions without a leader, full disks and refused writes are not for this caller to see."""
    log_in(guarded, READER.token)
    guarded.sees("orders")
    guarded.driver.get(f"{guarded.url}/#/")
    guarded.sees("nothing that you may see needs you")
    assert not guarded.find(".sentence .dot.good")


def test_a_caller_who_may_see_no_topic_is_not_told_that_there_is_none_and_is_offered_no_drill(guarded: Console) -> None:
    log_in(guarded, STRANGER.token)
    guarded.sees("There is no topic that you may see")
    guarded.driver.get(f"{guarded.url}/#/")
    guarded.sees("no topic that you may see; nothing that you may see needs you")
    assert "See a zombie refused" not in guarded.text("main")
    guarded.driver.get(f"{guarded.url}/#/drill")
    guarded.sees("you need the rights acquire and produce on topic:fence-drill")
    assert not guarded.find(".page-head button")


def test_a_producers_name_that_is_not_for_the_caller_to_see_is_not_denied(guarded: Console) -> None:
    """The page said that the producer had none."""
    headers = {"Authorization": f"Bearer {ADMIN.token}"}
    made = call("POST", f"{guarded.url}/v1/producers", {"name": "paula"}, headers=headers).json
    stamp = {f"Stockade-Producer-{name}": str(made[f"producer_{name.lower()}"]) for name in ("Id", "Epoch")}
    place = f"{guarded.url}/v1/topics/orders/partitions/0/records"
    expect(
        200,
        call("POST", place, {"records": [{"value": "x"}]}, headers=headers | stamp | {"Stockade-Producer-Seq": "0"}),
    )
    log_in(guarded, READER.token)
    guarded.sees("orders")
    guarded.driver.get(f"{guarded.url}/#/topics/orders/0?tab=producers")
    guarded.sees(f"producer {made['producer_id']}")
    assert "without a name" not in guarded.text("main")


STILL = """
window.trueFetch = window.fetch;
window.fetch = (url, { signal }) =>
  new Promise((_, reject) => signal?.addEventListener('abort', () => reject(signal.reason)));
const timeout = AbortSignal.timeout.bind(AbortSignal);
AbortSignal.timeout = (ms) => timeout(ms / 20);
"""
"""No answer comes, as from a frozen process; and time goes by faster."""


def test_a_node_that_stands_still_is_noticed_also_without_the_right_to_its_events(guarded: Console) -> None:
    """The page waited for an answer without an end, and said that it was live."""
    log_in(guarded, READER.token)
    guarded.sees("orders")
    guarded.script(STILL)
    guarded.sees("This node does not answer", "body")
    guarded.sees("no answer", ".top-bar")
    guarded.script("window.fetch = window.trueFetch")
    guarded.sees("live", ".top-bar")


def test_an_administrator_is_offered_every_act(guarded: Console) -> None:
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


def signed(ends_s: int) -> str:
    """A token of the identity provider for rita."""
    claims = {"iss": "https://idp.example.com", "aud": "stockade", "sub": "rita", "exp": ends_s}
    return jwt.encode(claims, KEY, algorithm="EdDSA", headers={"kid": "1"})


def test_a_person_logs_in_by_a_json_web_token_which_tells_when_it_ends(guarded: Console) -> None:
    log_in(guarded, signed(int(time.time()) + 86_400))
    guarded.sees("orders")
    guarded.sees("rita", ".side-foot")
    guarded.sees("Token until", ".side-foot")
    log_in_again(guarded, signed(int(time.time()) + 120))
    guarded.sees("Token ends", ".side-foot")  # soon
    guarded.picture("token-ends-soon")
    assert guarded.findings() == []
    log_in_again(guarded, ADMIN.token)
    guarded.sees("ann", ".side-foot")
    assert "Token" not in guarded.text(".side-foot")


def log_in_again(console: Console, token: str) -> None:
    console.press("Log out")
    console.sees("Log in to this cluster", ".login")
    console.fill("Token", token)
    console.press("Log in")
