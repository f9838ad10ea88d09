"""A mail in a real browser, measured: on a phone 390 px wide, and on a desktop, light and dark."""

from __future__ import annotations

import pytest

from gpuwatch.notifiers.email.mail_page import as_html
from gpuwatch.ports import Severity
from tests.browser import BROWSERS, browser, measure
from tests.notifiers.alerts import a_line, an_alert
from tests.notifiers.toolkit.test_layout import BURST, GROUP, HELD

pytestmark = pytest.mark.skipif(browser() is None, reason=f"no browser on this machine: {', '.join(BROWSERS)}")

LONG = an_alert(
    severity=Severity.WARNING,
    headline="w" * 140,
    facts=(("Label" * 20, "x" * 290), ("Place", "Iceland, IS")),
    offers=(a_line(place="y" * 290, url="https://market.example/" + "z" * 300),),
    can_do=("Set it: gpuwatch approvals approve " + "q" * 200,),
)
_BUTTONS = {"match": 1, "held": 0, "group": 1, "burst": 0, "long": 1}
ALERTS = {"match": an_alert(), "held": HELD, "group": GROUP, "burst": BURST, "long": LONG}
# Contrast by WCAG 2.1, of each text with the nearest painted background behind it.
_MEASURE = """(page, window) => {
  const channel = c => { c /= 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
  const parse = text => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const behind = node => {
    for (; node; node = node.parentElement) {
      const colour = parse(window.getComputedStyle(node).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const contrast = node => {
    const [one, other] = [light(parse(window.getComputedStyle(node).color)), light(behind(node))];
    return (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
  };
  const texts = [...page.body.querySelectorAll("*")].filter(
    node => [...node.childNodes].some(child => child.nodeType === 3 && child.textContent.trim()));
  const buttons = [...page.querySelectorAll("a")].map(node => node.getBoundingClientRect());
  return {
    scrolls: page.documentElement.scrollWidth - window.innerWidth,
    right: Math.max(...texts.map(node => node.getBoundingClientRect().right)) - window.innerWidth,
    buttons: buttons.map(box => box.height),
    smallest: Math.min(...texts.map(node => parseFloat(window.getComputedStyle(node).fontSize))),
    contrast: Math.min(...texts.map(contrast)),
    ground: light(behind(page.querySelector("h1"))),
    width: page.querySelector(".gw-card").getBoundingClientRect().width,
    requests: window.performance.getEntriesByType("resource").length,
  };
}"""


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_mail_can_be_read_and_tapped(scheme: str) -> None:
    """One browser for all tests: it takes seconds to start."""
    asked = [(name, width) for name in ALERTS for width in (390, 1280)]
    found = measure([(as_html(ALERTS[name]), width) for name, width in asked], _MEASURE, scheme)
    assert len(found) == len(asked)
    for (name, width), seen in zip(asked, found, strict=True):
        what = f"{name} at {width} px: {seen}"
        assert seen["scrolls"] <= 0, what
        assert seen["right"] <= 0, what
        assert len(seen["buttons"]) == _BUTTONS[name], what
        assert all(height >= 44 for height in seen["buttons"]), what
        assert seen["smallest"] >= 14, what
        assert seen["contrast"] >= 4.5, what
        assert (seen["ground"] < 0.2) == (scheme == "dark"), what
        assert seen["width"] <= 640, what
        assert seen["requests"] == 0, what
