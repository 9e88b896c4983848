"""A cluster with writers, zombies and waiters, and a Chromium that looks at its console."""

import os
import tempfile
from collections.abc import Iterator

import pytest
from integration.api import CALM
from selenium import webdriver

from stockade.cli.local_cluster.cluster import LocalCluster

from .looking import TOOLS, Console
from .scene import Scene

WITHOUT = "STOCKADE_WITHOUT_CHROMIUM"
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"),
    # Every other host fails: the page must need none.
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
)


@pytest.fixture(scope="session")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Three nodes, and what the console has to show."""
    with LocalCluster(tmp_path_factory.mktemp("cluster"), port_base=0, settings=CALM) as cluster:
        yield Scene(cluster).played()


@pytest.fixture(scope="session")
def driver() -> Iterator[webdriver.Chrome]:
    """Fails where Chromium cannot be had, so that no run passes without it by accident: WITHOUT says that it may."""
    missing = [
        *(name for name in ("chromium", "chromedriver") if not (TOOLS / "bin" / name).exists()),
        *(["axe-core"] if not (TOOLS / "npm" / "node_modules" / "axe-core").exists() else []),
    ]
    if missing:
        how = "`python tools/setup_tools.py chromium axe` as root installs them"
        words = f"no {', '.join(missing)} here: {how}; {WITHOUT}=1 goes on without these tests"
        if os.environ.get(WITHOUT):
            pytest.skip(words)
        pytest.fail(words, pytrace=False)
    with tempfile.TemporaryDirectory() as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = str(TOOLS / "bin" / "chromium")
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        service = webdriver.ChromeService(executable_path=str(TOOLS / "bin" / "chromedriver"))
        with webdriver.Chrome(options=options, service=service) as found:
            yield found


@pytest.fixture
def console(driver: webdriver.Chrome, scene: Scene) -> Iterator[Console]:
    """A tab as a person opens it: light, wide, with nothing stored. Each test ends without an error in its log."""
    scene.renew()
    seen = Console(driver, scene.url)
    seen.reset()
    yield seen
    seen.check_log()
