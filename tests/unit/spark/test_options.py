import traceback
from collections.abc import Callable

import pytest

from stockade.client.errors import ClusterUnreachable
from stockade.spark.options import GivenOptions, OptionsError, short


def test_a_misspelt_option_hears_the_similar_one_and_the_list_of_all_comes_once() -> None:
    given = GivenOptions({"subscrib": "t", "kafka.bootstrap.servers": "a:1", "colour": "red"})
    given.refuse_unknown(["url", "subscribe"], "read")
    assert given.faults == [
        "unknown option subscrib of a read (did you mean subscribe?)",
        "unknown option colour of a read",
        "unknown option kafka.bootstrap.servers of a read (its options are url, subscribe)",
    ]


@pytest.mark.parametrize("options", [{}, {"url": "u", "option.url": "u", "owner": "me", "provider": "stockade"}])
def test_a_table_of_the_catalog_hears_of_temporary_views(options: dict[str, str]) -> None:
    """It heard that `option.url`, `owner` and `provider` are no options, or that `url` must be a URL."""
    given = GivenOptions(options)
    given.refuse_unknown(["url"], "read")
    [fault] = given.faults
    assert "CREATE TEMPORARY VIEW" in fault


def test_the_message_begins_with_what_to_do() -> None:
    assert str(OptionsError(["a is wrong", "b is wrong"])) == "correct the options: a is wrong; b is wrong"


@pytest.mark.parametrize("refusal", [OptionsError(["a is wrong"]), ClusterUnreachable("no node")])
def test_a_refusal_is_not_buried_in_a_traceback(refusal: Exception) -> None:
    def deep(calls: int) -> None:
        if calls:
            deep(calls - 1)
        raise refusal

    called: Callable[[int], None] = short(deep)
    with pytest.raises(type(refusal)) as caught:
        called(5)
    assert [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)][1:] == ["called"]
