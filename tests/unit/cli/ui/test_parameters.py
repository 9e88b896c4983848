"""Times on a command line: a number is taken for milliseconds since 1970 only where it can be nothing else."""

import click
import pytest
from click.testing import CliRunner

from stockade.cli.main import main
from stockade.cli.ui.parameters import InstantType, MomentType

AT_MS = 1_893_456_000_000


@pytest.mark.parametrize("text", ["2030-01-01", "2030-01-01T00:00:00Z", "2030-01-01T01:00:00+01:00", str(AT_MS)])
def test_a_time_is_a_date_of_iso_8601_or_milliseconds_since_1970(text: str) -> None:
    assert InstantType().convert(text, None, None) == MomentType().convert(text, None, None) == AT_MS


@pytest.mark.parametrize("text", ["20300101", "2030", "1893456000", "20300101123", "20300101000000", "0"])
@pytest.mark.parametrize("kind", [InstantType(), MomentType()])
def test_a_number_that_may_be_a_date_or_seconds_is_refused_with_the_forms_of_a_time(
    kind: InstantType | MomentType, text: str
) -> None:
    with pytest.raises(click.BadParameter, match=r"2026-01-31T12:00:00Z, or milliseconds since 1970 \(13 digits\)"):
        kind.convert(text, None, None)


@pytest.mark.parametrize("expires", ["2001-01-01", "1000000000000"])
def test_a_token_that_would_have_expired_already_is_wrong_usage(expires: str) -> None:
    done = CliRunner().invoke(main, ["principals", "add-token", "billing", "--expires", expires])
    assert (done.exit_code, f"'{expires}' has passed" in done.stderr) == (2, True)
