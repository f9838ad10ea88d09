"""A real browser, if this machine has one: measures and pictures pages as they appear on a screen.

Headless Chromium, in an inner frame of the requested width, because a window is never narrower than 500 px.
"""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

BROWSERS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
_TIMEOUT_S = 90
_RESULT = re.compile(r'<pre id="result">(.*?)</pre>', re.S)
_SCHEMES = {"dark": 0, "light": 1}  # values of the browser's own setting
_FRAME = '<iframe style="border:0;display:block" width="{width}" height="{height}" srcdoc="{page}"></iframe>'
_PAGE = """<!DOCTYPE html><meta charset="utf-8"><body style="margin:0">
{frames}<pre id="result"></pre><script>
addEventListener("load", () => {{
  const measure = {measure};
  const found = [...document.querySelectorAll("iframe")].map(one => measure(one.contentDocument, one.contentWindow));
  document.getElementById("result").textContent = JSON.stringify(found);
}});
</script></body>"""


def browser() -> str | None:
    """Return the path of the first browser found, or None."""
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


def measure(pages: Sequence[tuple[str, int]], script: str, scheme: str = "light") -> list[Mapping[str, Any]]:
    """Return a script's result for each page, in order.

    Args:
        pages: each with the width of the viewport, in CSS pixels.
        script: a JavaScript function of a page's document and window.
        scheme: "light" or "dark", the setting of the reader's device.
    """
    shown = _run(_framed(pages, 844, script), scheme, "--dump-dom", "--virtual-time-budget=3000")
    found = _RESULT.search(shown)
    assert found is not None, shown[-2000:]
    result: list[Mapping[str, Any]] = json.loads(html.unescape(found[1]))
    return result


def picture(page: str, to: Path, width: int, height: int, scheme: str = "light") -> None:
    """Write a page as a PNG; a window wider than the page is cropped."""
    from PIL import Image

    with TemporaryDirectory() as folder:
        whole = Path(folder, "whole.png")
        framed = _framed([(page, width)], height, "() => 0")
        window = f"--window-size={max(width, 500)},{height}"
        _run(framed, scheme, f"--screenshot={whole}", window, "--hide-scrollbars", "--force-device-scale-factor=2")
        with Image.open(whole) as shown:
            shown.crop((0, 0, 2 * width, 2 * height)).quantize(64).save(to, optimize=True)


def _framed(pages: Sequence[tuple[str, int]], height: int, script: str) -> str:
    frames = [_FRAME.format(page=html.escape(page), width=width, height=height) for page, width in pages]
    return _PAGE.format(frames="\n".join(frames), measure=script)


def _run(page: str, scheme: str, *arguments: str) -> str:
    path = browser()
    assert path is not None
    with TemporaryDirectory() as folder:
        source = Path(folder, "page.html")
        source.write_text(page, encoding="utf-8")
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium refuses root with it
        ran = subprocess.run(
            [
                path, "--headless", *sandbox, "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                "--disable-background-networking", f"--user-data-dir={folder}/profile",
                f"--blink-settings=preferredColorScheme={_SCHEMES[scheme]}", *arguments, source.as_uri(),
            ],
            capture_output=True, text=True, timeout=_TIMEOUT_S, check=True,
        )  # fmt: skip
    return ran.stdout
