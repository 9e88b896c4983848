"""What a person does with the console: opens views, points, types, presses keys, and looks."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException, WebDriverException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

TOOLS = Path(__file__).resolve().parents[2] / ".tools"
PICTURES = TOOLS / "pictures"
AXE = TOOLS / "npm" / "node_modules" / "axe-core" / "axe.min.js"
WIDE, PHONE = (1360, 900), (390, 844)
WAIT_S = 60.0

PIXELS = """
const named = document.createElement('i');
named.style.color = `var(${arguments[0]})`;
document.body.append(named);
const [red, green, blue] = getComputedStyle(named).color.match(/\\d+/g).map(Number);
named.remove();
const has = (chart) => {
  const copy = new OffscreenCanvas(chart.width, chart.height).getContext('2d', { willReadFrequently: true });
  copy.drawImage(chart, 0, 0);
  const { data } = copy.getImageData(0, 0, chart.width, chart.height);
  for (let at = 0; at < data.length; at += 4)
    if (data[at] === red && data[at + 1] === green && data[at + 2] === blue && data[at + 3] === 255) return true;
  return false;
};
const charts = [...document.querySelectorAll('.chart canvas')];
return charts.length > 0 && charts.every(has);
"""

_T = TypeVar("_T")


class Console:
    """One tab."""

    def __init__(self, driver: webdriver.Chrome, url: str) -> None:
        self.driver = driver
        self.url = url

    def reset(self) -> None:
        """A fresh tab in light colours, and an empty log."""
        self.size(WIDE)
        self.scheme("light")
        self.driver.get(f"{self.url}/healthz")
        self.driver.execute_script("sessionStorage.clear(); localStorage.clear();")
        self.driver.get_log("browser")

    def open(self, path: str, heading: str | None = None) -> None:
        """The view with this address; wait until it has its heading."""
        self.driver.get("about:blank")
        self.driver.get(f"{self.url}/#/{path}")
        self.until(lambda: heading is None or self.text("h1") == heading, f"the heading {heading}")
        self.until(lambda: "Reading…" not in self.text("main"), "an answer")

    def size(self, size: tuple[int, int]) -> None:
        width, height = size
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": size == PHONE}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def scheme(self, name: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": name}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def find(self, css: str) -> list[WebElement]:
        found: list[WebElement] = self.driver.find_elements(By.CSS_SELECTOR, css)
        return found

    def text(self, css: str) -> str:
        found = self.find(css)
        return found[0].text if found else ""

    def sees(self, words: str, css: str = "main") -> None:
        """Wait until these words are there."""
        self.until(lambda: words in self.text(css), f"{words!r} in {css}", lambda: self.text(css))

    def button(self, name: str, within: str = "body") -> WebElement:
        """The button or link with this name, as assistive technology computes it."""

        def named() -> WebElement | None:
            found = self.find(f"{within} button, {within} a, {within} [role=option]")
            return next((each for each in found if each.is_displayed() and each.accessible_name == name), None)

        found: WebElement = self.until(named, f"a button {name!r}", lambda: self.text(within))
        return found

    def press(self, name: str, within: str = "body") -> None:
        self.until(lambda: self._clicked(name, within), f"a press of {name!r}")

    def _clicked(self, name: str, within: str) -> bool:
        """False while it cannot be pressed, as the act of a plan that is still being made."""
        found = self.button(name, within)
        if not found.is_enabled():
            return False
        found.click()
        return True

    def field(self, label: str, within: str = "body") -> WebElement:
        def named() -> WebElement | None:
            found = self.find(f"{within} input, {within} select")
            return next((each for each in found if each.accessible_name.startswith(label)), None)

        found: WebElement = self.until(named, f"a field {label!r}")
        return found

    def fill(self, label: str, text: str, within: str = "body") -> None:
        field = self.field(label, within)
        field.send_keys(Keys.CONTROL, "a")
        field.send_keys(text)

    def keys(self, *keys: str) -> None:
        webdriver.ActionChains(self.driver).send_keys(*keys).perform()

    def script(self, text: str, *arguments: Any) -> Any:
        return self.driver.execute_script(text, *arguments)

    def charts_have(self, color: str) -> bool:
        """Whether each chart has a pixel of this colour of the page, as it is now; False without a chart."""
        return bool(self.script(PIXELS, color))

    def picture(self, name: str) -> None:
        """For people: pytest cannot see whether it looks good."""
        PICTURES.mkdir(parents=True, exist_ok=True)
        self.driver.save_screenshot(str(PICTURES / f"{name}.png"))

    def findings(self) -> list[str]:
        """What axe has against this view."""
        self.script(AXE.read_text(encoding="utf-8"))
        rules = "['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice']"
        done = "then(r => told(r.violations), e => told([e.message]))"
        run = f"const told = arguments[0]; axe.run(document, {{runOnly: {rules}}}).{done}"
        found = self.driver.execute_async_script(run)
        return [f"{one['id']}: {[node['html'][:160] for node in one['nodes']][:4]}" for one in found]

    def check_log(self) -> None:
        """No error of a script, and nothing that the page's policy forbids. A refusal of the API is no error."""
        entries = [entry for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]
        assert [each["message"] for each in entries if "Failed to load resource" not in each["message"]] == []

    def until(self, attempt: Callable[[], _T], what: str, seen: Callable[[], str] = str) -> Any:
        """What ``attempt`` answers once it is true; a page that is being drawn again is asked again."""
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                if found := attempt():
                    return found
            except (StaleElementReferenceException, WebDriverException) as error:
                if time.monotonic() > deadline:
                    raise AssertionError(f"not within {WAIT_S} s: {what}") from error
            assert time.monotonic() < deadline, f"not within {WAIT_S} s: {what}; seen: {seen()[:2000]}"
            time.sleep(0.05)
