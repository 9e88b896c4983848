"""The pages that tools make say what code and contract say; docs/api.md leaves no public name out."""

from reference_pages import (
    ERRORS,
    METRICS,
    ROOT,
    SETTINGS,
    advice,
    client_only,
    contract,
    errors_page,
    metrics_page,
    settings_page,
)

import stockade
from stockade.client.errors import UnknownRefusal, refusal_in
from stockade.partition.api.topics import TopicConfig
from stockade.partition.errors import BY_CODE

AGAIN = "run `python tools/reference_pages.py`"


def test_the_pages_are_what_the_tool_writes_now() -> None:
    assert ERRORS.read_text(encoding="utf-8") == errors_page(), AGAIN
    assert SETTINGS.read_text(encoding="utf-8") == settings_page(), AGAIN
    assert METRICS.read_text(encoding="utf-8") == metrics_page(), AGAIN


def test_every_code_has_advice_and_a_place_on_the_page() -> None:
    """A KeyError here: say in partition/refusal_texts.py what a program does after the new refusal."""
    page = errors_page()
    for code in (*BY_CODE, *(cls.code for cls in client_only())):
        assert f"\n### {code}\n" in page
        assert advice(code).endswith(".")


def test_each_reason_of_a_refusal_has_advice_of_its_own() -> None:
    assert "`identity`: a newer instance" in advice("PRODUCER_FENCED")
    assert "`gap`: sequence numbers are missing: `expected_seq` comes next" in advice("OUT_OF_ORDER_SEQUENCE_NUMBER")


def test_the_page_says_of_an_unknown_code_that_each_answer_decides_about_its_effect() -> None:
    """It said "no effect, not retriable", which a program would take for every such answer."""
    section = errors_page().split("### UNKNOWN_REFUSAL\n\n")[1]
    assert section.startswith("*effect, and whether it is retriable, as each answer says.*")
    assert (refusal_in({"code": "NEW"}, 500).no_side_effects, UnknownRefusal.no_side_effects) == (False, True)


def test_every_setting_of_a_topic_is_on_the_page() -> None:
    assert set(contract()["TopicConfig"]["properties"]) == set(TopicConfig.__struct_fields__)


def test_every_public_name_is_on_the_page_of_the_python_api() -> None:
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    names = [name for name in stockade.__all__ if not name.startswith("__")]
    assert not [name for name in names if f"\n::: stockade.{name}\n" not in page]
