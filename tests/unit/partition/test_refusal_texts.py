"""What refusals say: each cause has a sentence of its own, and says what to do next."""

import re
import traceback
from collections import Counter
from typing import Any

import pytest

from stockade.client.errors import ClusterUnreachable
from stockade.partition.errors import (
    BY_CODE,
    FencingTokenRequired,
    InvalidRequest,
    NotFound,
    NotOwner,
    ProducerBusy,
    ProducerFenced,
    SessionExpired,
    StockadeError,
    ThrottlingQuotaExceeded,
    Unauthenticated,
)
from stockade.partition.refusal_texts import BY_CODE as TEXTS
from stockade.partition.refusal_texts import BY_REASON, Surface
from stockade.spark.options import OF_CREDENTIALS

HOLDER = {"producer_name": "alpha", "client_id": "c1", "mode": "Exclusive"}
FIELDS: dict[str, Any] = {"current_epoch": 7, "holder": HOLDER, "queue_len": 2, "expected_seq": 3, "last_seq": 2}
FIELDS |= {"host": "evil.example", "origin": "http://evil.example"}
CAUSES_MAY_BE_SAID_BY_THE_RAISER = {"INVALID_REQUEST", "INVALID_RECORD"}


@pytest.mark.parametrize(("code", "reason"), BY_REASON)
def test_each_code_and_reason_has_a_sentence_and_a_hint(code: str, reason: str) -> None:
    error = StockadeError.__new__(BY_CODE[code])
    StockadeError.__init__(error, reason=reason, **FIELDS)
    assert error.detail != error.title
    assert "{" not in error.detail
    assert error.hint.endswith(".")


def test_no_two_causes_have_one_sentence() -> None:
    said = Counter(text.because for text in (*BY_REASON.values(), *TEXTS.values()) if text.because)
    assert said.most_common(1)[0][1] == 1


def test_every_code_has_a_text_or_is_explained_where_it_is_raised() -> None:
    with_text = {*TEXTS, *(code for code, _ in BY_REASON)}
    assert set(BY_CODE) - with_text == CAUSES_MAY_BE_SAID_BY_THE_RAISER


def test_no_text_has_a_pronoun_in_place_of_a_subject() -> None:
    words = " ".join(" ".join(text) for text in (*BY_REASON.values(), *TEXTS.values()))
    titles = " ".join(kind.title for kind in BY_CODE.values())
    assert not re.search("(?i)somebody|nobody|whoever|someone", words + titles)


def test_a_text_claims_only_what_its_refusal_proves() -> None:
    fenced, free = (BY_REASON["PRODUCER_FENCED", reason] for reason in ("identity", "slot_free"))
    assert "or an operator fenced it" in fenced.because
    assert free.because.endswith("no grant holds the partition alone"), "others may share it"
    assert "unless the partition's has grown" in free.hint, "a Shared grant may have come, and raised no epoch"
    overlap = BY_REASON["OUT_OF_ORDER_SEQUENCE_NUMBER", "overlap"]
    assert "cut" not in overlap.because, "a strict topic refuses an exact repetition for this reason, too"
    assert "strict_sequence" in overlap.hint
    assert "was added just now" in TEXTS["INVALID_FENCING_TOKEN"].hint, "the epoch was given out, and is to come"
    given_up = NotOwner(fence_epoch=1, resource="orders/0", group="g").detail
    assert "is not 1" not in given_up, "the session that gave it up, or whose session ended, has sent this very number"
    assert "given out" not in given_up, "the controller may have given out a later one, or none at all (0)"
    assert "the partition knows 1 as the last one of orders/0 in group g" in given_up


def test_a_busy_slot_names_its_holder_and_does_not_if_it_is_unknown() -> None:
    busy = ProducerBusy(reason="exclusive_present", **FIELDS)
    assert busy.detail == "producer alpha of client c1 holds the slot (Exclusive)"
    assert busy.holder == ProducerFenced(reason="superseded", **FIELDS).holder == HOLDER
    assert ProducerBusy(reason="waiters_present").holder is None
    assert ProducerBusy(reason="exclusive_present", holder=None).detail == ProducerBusy.title


def test_equal_names_of_producer_and_client_are_written_once() -> None:
    busy = ProducerBusy(reason="exclusive_present", holder=HOLDER | {"client_id": "alpha"})
    assert busy.detail == "producer alpha holds the slot (Exclusive)"


@pytest.mark.parametrize(
    ("surface", "says"), [("http", "Stockade-Fence-Grant"), ("python", "producer.exclusive"), ("cli", "--exclusive")]
)
def test_each_surface_gets_its_own_advice_only(surface: Surface, says: str) -> None:
    hint = FencingTokenRequired().hint_on(surface)
    assert hint.startswith("Acquire a grant first")
    told = {word for word in ("Stockade-Fence-Grant", "producer.exclusive", "--exclusive") if word in hint}
    assert told == {says}


def test_a_query_of_spark_whose_token_is_refused_hears_of_the_option_that_takes_a_file_of_tokens() -> None:
    assert "authTokenFile" in OF_CREDENTIALS
    assert "authTokenFile" in Unauthenticated().hint_on("python")


def test_a_hint_for_all_has_no_option_of_the_command_line_and_no_route() -> None:
    for text in (*BY_REASON.values(), *TEXTS.values()):
        assert not re.search(r"--\w|(GET|POST|PUT|DELETE) /", text.hint), text


def test_a_traceback_says_what_to_do_next_once_and_keeps_the_notes_of_others() -> None:
    error = FencingTokenRequired()
    error.add_note("while the books were closed")
    shown = "".join(traceback.format_exception(error)).splitlines()
    assert shown[-2:] == [f"What to do next: {error.hint}", "while the books were closed"]
    assert not InvalidRequest("n: not positive").__notes__, "there is no advice beyond the sentence"


def test_a_sentence_of_the_raiser_counts_and_keeps_the_hint() -> None:
    fenced = ProducerFenced("gone", reason="identity", current_epoch=2)
    assert fenced.detail == "gone"
    assert fenced.hint == ProducerFenced(reason="identity").hint != ProducerFenced(reason="evicted").hint
    assert InvalidRequest("n: not positive").detail == "n: not positive"


def test_not_found_names_the_object_and_the_hint_names_the_command_that_lists_them() -> None:
    session = NotFound(what="session")
    assert session.detail == "there is no live session with this handle"
    assert "`stockade sessions list`" in session.hint
    assert "producers" not in session.hint
    named = NotFound("there is no node n9", what="node")
    assert named.detail == "there is no node n9"
    assert "`stockade cluster status`" in named.hint
    assert (NotFound(what="of a newer node").detail, NotFound(what="of a newer node").hint) == (NotFound.title, "")


def test_the_hint_for_a_used_quota_of_objects_says_that_waiting_does_not_help() -> None:
    refused = ThrottlingQuotaExceeded("there are 100000 sessions", retry_after_ms=1000)
    assert "waiting does not help" in refused.hint
    assert "requests" not in refused.title


def test_a_session_that_ended_may_have_been_fenced_and_the_hint_says_where_to_see_which() -> None:
    ended = SessionExpired()
    assert "not renewed in time, or an operator ended it" in ended.detail
    assert "`stockade grants describe TOPIC`" in ended.hint


def test_the_hint_on_the_command_line_for_an_unreachable_cluster_begins_with_its_nodes() -> None:
    hint = ClusterUnreachable().hint_on("cli")
    assert hint.startswith("Check that the nodes run")
    assert hint.endswith("--url or STOCKADE_URL names the nodes to ask.")
