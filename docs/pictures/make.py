"""Makes the pictures of the documents: `make pictures`, or `python -m docs.pictures.make`.

What they show is what the program printed: a real `gpuwatch check` over the embedded marketplace, `gpuwatch alerts` of
a store, and an alert as Telegram and a mail program show it, the mail by a real browser. The floors are drawn from the
folders (`python -m tools.floors` draws them alone).
"""

from __future__ import annotations

import contextlib
import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from html import unescape
from io import StringIO
from pathlib import Path

import msgspec
from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from docs.pictures import falling_price
from gpuwatch.domain.alerts.alert import alert_for_reading
from gpuwatch.emulator import Marketplace
from gpuwatch.notifiers.email.mail_page import as_html
from gpuwatch.notifiers.telegram import render
from gpuwatch.ports import AlertKind, OutboxAlert
from gpuwatch.storage.alerts.outbox import Outbox
from gpuwatch.storage.setup.database import open_database
from gpuwatch.storage.setup.migrate import upgrade
from tests.browser import browser, picture
from tests.notifiers.samples import alerts_by_kind
from tests.web.chromium import page_at, started
from tools.floors import draw

HERE = Path(__file__).parent
GPUWATCH = (sys.executable, "-m", "gpuwatch")
COMMAND = ("check", "--gpu", "H100", "--max-price", "2.00")
LIST = ("alerts", "--since", "3650d")
MATCH = alerts_by_kind()[AlertKind.MATCH]
MAILS = (
    ("mail-390.png", 390, 1180, "light"),
    ("mail-390-dark.png", 390, 1180, "dark"),
    ("mail.png", 900, 1000, "light"),
)
PAGES = (
    ("web-now.png", "/", (1100, 760), "light"),
    ("web-now-360.png", "/", (360, 780), "dark"),
)
OFFERS = ((1.39, "Utah, US"), (1.47, "Sweden, SE"), (1.58, "Quebec, CA"), (1.66, "Norway, NO"), (2.40, "Japan, JP"))
_TAG = re.compile(r"<(/?)(\w+)(?: [^>]*)?>")
_FONT = re.compile(r"@font-face \{.*?\}\s*", re.S)  # it would be fetched from elsewhere


def main() -> None:
    draw()
    falling_price.draw()
    with Marketplace(seed=7, key="picture", size=40, odd_rows=False) as market:
        for row in market.offers():
            if "H100" in str(row["gpu_name"]):
                market.withdraw(row["id"])
        for price, place in OFFERS:
            market.publish(gpu="H100 SXM", count=1, usd_hour=price, geolocation=place, storage_cost=0.1)
        _save("check.svg", f"$ gpuwatch {' '.join(COMMAND)}", Text(_check(market)), width=112)
    _save("alert.svg", "Telegram", telegram_picture(), width=84)
    _save("alerts.svg", "$ gpuwatch alerts", Text(_alerts()), width=80)
    page = as_html(alert_for_reading(MATCH))
    if browser() is None:
        sys.stdout.write("no browser on this machine: the pictures of the mail stay as they are\n")
        return
    for name, width, height, scheme in MAILS:
        picture(page, HERE / name, width, height, scheme)
        sys.stdout.write(f"{HERE / name}\n")
    _web_pictures()


def telegram_picture() -> Panel:
    """The alert as Telegram shows it."""
    return Panel(_as_rich(render(alert_for_reading(MATCH))), border_style="dim")


def _check(market: Marketplace) -> str:
    with tempfile.TemporaryDirectory() as folder:
        env = _env(folder) | {"GPUWATCH_PROVIDERS__VASTAI__BASE_URL": market.url}
        ran = subprocess.run(  # noqa: S603 our own command
            [*GPUWATCH, *COMMAND], cwd=folder, env=env, capture_output=True, text=True, check=True
        )
    return ran.stdout + ran.stderr


def _alerts() -> str:
    """What `gpuwatch alerts` prints on a terminal of 80 columns, of a store with an alert of each kind."""
    with tempfile.TemporaryDirectory() as folder:
        env = _env(folder) | {"COLUMNS": "80", "NO_COLOR": "1", "GPUWATCH_DATABASE_URL": f"sqlite:///{folder}/g.db"}
        store = open_database(env["GPUWATCH_DATABASE_URL"])
        upgrade(store)
        for number, alert in enumerate(alerts_by_kind().values()):
            at = alert.created_at + timedelta(minutes=7 * number)
            one = msgspec.structs.replace(alert, alert_id=f"{alert.alert_id[:-2]}{number:02}", created_at=at)
            Outbox(store).enqueue(OutboxAlert(alert=one, expires_at=at))
        store.close()
        outside, inside = pty.openpty()
        with subprocess.Popen(  # noqa: S603 our own command
            [*GPUWATCH, *LIST], cwd=folder, env=env, stdin=inside, stdout=inside, stderr=inside
        ):
            os.close(inside)
            shown = b"".join(_read(outside))
    return shown.decode().replace("\r\n", "\n").rstrip("\n")


def _web_pictures() -> None:
    """The web page of `gpuwatch demo --web`, on a desktop and on a phone."""
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(  # noqa: S603 our own command
            [*GPUWATCH, "demo", "--web"], cwd=folder, env=_env(folder), stdout=subprocess.PIPE, text=True
        ) as demo,
        started() as chromium,
    ):
        assert demo.stdout is not None
        found = (re.search(r"web page: (http://\S+)/|one-time code: (\S+)", line) for line in demo.stdout)
        url, code = [next(one for one in found if one is not None) for _ in range(2)]
        for name, path, size, scheme in PAGES:
            with page_at(chromium, url[1], size, color_scheme=scheme) as page:
                page.goto("/login")
                if page.get_by_label("One-time code").is_visible() and scheme == "light":
                    page.get_by_label("One-time code").fill(code[2])
                    page.get_by_role("main").get_by_role("button", name="Log in").click()
                    page.wait_for_url("**/")
                page.goto(path)
                page.get_by_role("link", name="Review").first.wait_for(timeout=120_000)
                page.screenshot(path=HERE / name)
            sys.stdout.write(f"{HERE / name}\n")
        demo.send_signal(signal.SIGINT)


def _env(folder: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": folder, "LANG": "C.UTF-8", "PYTHONPATH": str(HERE.parents[1])}


def _read(terminal: int) -> Iterator[bytes]:
    with contextlib.suppress(OSError):  # how Linux reports that nobody writes there any more
        while block := os.read(terminal, 65_536):
            yield block
    os.close(terminal)


def _as_rich(html: str) -> Text:
    """Telegram's HTML as a terminal shows it."""
    shown, bold, at = Text(), 0, 0
    for tag in _TAG.finditer(html):
        shown.append(unescape(html[at : tag.start()]), style="bold" if bold else "")
        bold += {"b": -1 if tag[1] else 1}.get(tag[2], 0)
        at = tag.end()
    shown.append(unescape(html[at:]))
    return shown


def _save(name: str, title: str, content: Text | Panel, width: int) -> None:
    console = Console(record=True, width=width, file=StringIO())
    console.print(content)
    (HERE / name).write_text(_FONT.sub("", console.export_svg(title=title)), encoding="utf-8")
    sys.stdout.write(f"{HERE / name}\n")


if __name__ == "__main__":
    main()
