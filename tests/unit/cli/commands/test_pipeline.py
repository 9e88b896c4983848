"""What `stockade pipeline` refuses before Spark starts."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from stockade.cli.commands.pipeline import _options
from stockade.cli.main import main
from stockade.client.config import ClientConfig

NOBODY = "http://127.0.0.1:1"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["load", "nowhere", "t"], "there is no file or folder nowhere"),
        (["export", "t", "a-file"], "a-file is not a folder"),
        (["export", "t", "out", "--format", "text", "--follow"], "--follow has no meaning with --format text"),
        (["export", "t", "s3://out", "--format", "text"], "writes into a folder of this machine"),
        (["load", "a-file", "t", "--format", "xml"], "'xml' is not one of"),
        (["export", "t", "out", "--format", "iceberg"], "'iceberg' is not one of 'parquet', 'delta', 'text'"),
        (["load", "a-file", "t", "--name", "bad name!"], "'--name': it must be 1 to 100 of letters, digits"),
        (["audit"], "give HISTORY and LOGS, or --rehearse"),
        (["audit", "a-file"], "give HISTORY and LOGS, or --rehearse"),
        (["audit", "a-file", "a-file", "--rehearse", "1000"], "give HISTORY and LOGS, or --rehearse"),
        (["audit", "a-file", "gone"], "there is no file or folder gone"),
        (["audit", "a-file", "a-file", "--html", "gone/x.html"], "--html: there is no folder gone"),
        (["audit", "--rehearse", "10"], "10 is not in the range"),
    ],
)
def test_wrong_usage_is_told_with_code_2(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a-file").write_text("x")
    ended = CliRunner().invoke(main, ["pipeline", *arguments])
    assert (ended.exit_code, said in ended.stderr) == (2, True), ended.output


def test_a_pipeline_follows_the_file_of_its_token(tmp_path: Path) -> None:
    """It kept the token that the file had when it began: an export with --follow ended with it."""
    path = tmp_path / "token"
    path.write_text("first")
    config = ClientConfig(bootstrap=NOBODY, token="unused", token_file=str(path))
    assert _options(config) == {"url": NOBODY, "authTokenFile": str(path)}
    assert _options(ClientConfig(bootstrap=NOBODY, token="other")) == {"url": NOBODY, "authToken": "other"}


def test_a_cluster_that_is_not_there_is_told_with_code_4(tmp_path: Path) -> None:
    ended = CliRunner().invoke(main, ["pipeline", "load", str(tmp_path), "t", "--url", NOBODY, "--timeout", "0.1"])
    assert ended.exit_code == 4, ended.output
    assert "stockade cluster" in ended.stderr
