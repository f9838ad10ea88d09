"""Makes the pictures of the README: `make pictures`, or `python docs/pictures/make.py`.

What they show is what the program printed: a real `gpuwatch check` and a real alert, over the embedded marketplace.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from decimal import Decimal
from html import unescape
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from gpuwatch.domain.market.pricing import Commission, price_of
from gpuwatch.domain.watches.decide import Decision, DecisionReason, Match
from gpuwatch.domain.watches.watch import Action, LaunchSpec, Watch
from gpuwatch.emulator import Marketplace
from gpuwatch.engine.offer_alerts import offer_alert
from gpuwatch.notifiers.telegram import render
from gpuwatch.ports import ProviderSettings, Query
from gpuwatch.providers import build
from gpuwatch.providers.toolkit.http.client import HttpxClient

HERE = Path(__file__).parent
COMMAND = ("check", "--gpu", "H100", "--max-price", "2.00")
OFFERS = ((1.39, "Utah, US"), (1.47, "Sweden, SE"), (1.58, "Quebec, CA"), (1.66, "Norway, NO"), (2.40, "Japan, JP"))
_TAG = re.compile(r"<(/?)(\w+)(?: [^>]*)?>")
_FONT = re.compile(r"@font-face \{.*?\}\s*", re.S)  # it would be fetched from elsewhere


def main() -> None:
    with Marketplace(seed=7, key="picture", size=40, odd_rows=False) as market:
        for row in market.offers():
            if "H100" in str(row["gpu_name"]):
                market.withdraw(row["id"])
        for price, place in OFFERS:
            market.publish(gpu="H100 SXM", count=1, usd_hour=price, geolocation=place, storage_cost=0.1)
        _save("check.svg", f"$ gpuwatch {' '.join(COMMAND)}", Text(_check(market)), width=96)
        _save("alert.svg", "Telegram", Panel(_as_rich(render(_alert(market))), border_style="dim"), width=84)


def _check(market: Marketplace) -> str:
    with tempfile.TemporaryDirectory() as folder:
        env = {"PATH": os.environ["PATH"], "HOME": folder, "GPUWATCH_PROVIDERS__VASTAI__BASE_URL": market.url}
        ran = subprocess.run(  # noqa: S603 our own command
            [sys.executable, "-m", "gpuwatch", *COMMAND],
            cwd=folder, env=env, capture_output=True, text=True, check=True,
        )  # fmt: skip
    return ran.stdout + ran.stderr


def _alert(market: Marketplace):  # type: ignore[no-untyped-def]
    now = datetime(2026, 11, 21, 2, 17, tzinfo=UTC)
    http = HttpxClient()
    settings = ProviderSettings(name="vastai", base_url=market.url, commission=Commission("0.20"))
    answer = build(settings, http, lambda: now, lambda: 0.0).market.search(Query(gpus=("H100 SXM",)))
    http.close()
    watch = Watch(
        name="h100-night", gpu=("H100",), gpu_names=("H100 SXM",), max_price_usd_gpu_hour=Decimal("2.00"),
        action=Action.LAUNCH, launch=LaunchSpec(),
    )  # fmt: skip
    found = [Match(offer, price_of(offer, None, settings.commission)) for offer in answer.offers[:4]]
    decision = Decision(watch=watch.name, reason=DecisionReason.FIRST_MATCH, decided_at=now, matches=tuple(found))
    did = "Renting it now, launch k3f7q2mzt5ab."
    return offer_alert(watch, decision, alert_id="c4r7n2e5xk6a", zone=UTC, did=did)


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
