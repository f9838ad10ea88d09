"""The pictures of the documents show the program's current output; `make pictures` makes them."""

from __future__ import annotations

import re
import runpy
from html import unescape
from io import StringIO

import pytest
from rich.console import Console

from docs.pictures import falling_price
from tests.checkout import ROOT
from tools.floors import as_svg

PICTURES = ROOT / "docs" / "pictures"
MAKE = runpy.run_path(str(PICTURES / "make.py"))


def _drawn(name: str) -> str:
    """Return the text of a terminal picture, without its title and without blanks, which a drawing lacks."""
    drawing = (PICTURES / name).read_text("utf-8")
    texts = re.findall(r'<text class="[^"]*-r\d+"[^>]*>(.*?)</text>', drawing, re.S)
    return _dense(unescape("".join(texts)).replace("\xa0", " "))


def _dense(text: str) -> str:
    return "".join(text.split())


def _printed(content: object, width: int) -> str:
    console = Console(width=width, file=StringIO(), record=True)
    console.print(content)
    return _dense(console.export_text())


def test_the_alert_is_what_telegram_shows() -> None:
    assert _drawn("alert.svg") == _printed(MAKE["telegram_picture"](), 84), "make pictures"


@pytest.mark.slow
def test_the_list_of_alerts_is_what_the_command_prints() -> None:
    assert _drawn("alerts.svg") == _dense(MAKE["_alerts"]()), "make pictures"


def test_the_floors_are_those_of_the_package() -> None:
    """Without numbers: a picture that every new module changes would be drawn again and no longer looked at."""
    assert (PICTURES / "floors.svg").read_text("utf-8") == as_svg(), "python -m tools.floors"


def test_the_falling_price_is_the_recorded_one() -> None:
    assert falling_price.PICTURE.read_text("utf-8") == falling_price.as_svg(), "make pictures"
