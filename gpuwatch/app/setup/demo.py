"""`gpuwatch demo`: the whole daemon against the emulator, in one process and 30 seconds.

Only the market is simulated: settings are read from a file, polls and orders use HTTP, history and launches are in a
database. Everything is in a temporary folder; the user's own settings and database are not read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import wrap
from typing import TypeVar

from gpuwatch.app.history.price_files import import_recorded
from gpuwatch.app.history.price_history import PriceHistoryRequest, price_history
from gpuwatch.app.history.recorded_prices import RECORDED_SINCE, RECORDED_UNTIL
from gpuwatch.app.launches.stop import stop
from gpuwatch.bootstrap import open_store, real_monotonic, real_now
from gpuwatch.bootstrap.service import Service
from gpuwatch.daemon.process import running_service
from gpuwatch.domain.history.market_history import MarketFilter
from gpuwatch.domain.launches.launch import Launch, LaunchState
from gpuwatch.domain.launches.money.launch_costs import cost_microusd
from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.domain.market.money import MICRO, per_gpu_hour
from gpuwatch.emulator import Delays, Marketplace
from gpuwatch.notifiers.toolkit import as_text
from gpuwatch.ports import Alert
from gpuwatch.settings import Settings, load
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.store_stats import read_store_stats

PrintLine = Callable[[str], None]
ShowPage = Callable[[Settings, Path], None]  # the settings in force, and their file
T = TypeVar("T")
PROVIDER = "vastai"  # the one that the emulator plays, and whose past the recorded prices become
GPU = "H100 SXM"
MAX_PRICE = "1.90"  # USD per GPU-hour, commission included
CALM_USD_HOUR = (2.45, 2.60, 2.95)  # listed prices of the three H100 of the demo
DROP_USD_HOUR = 1.50  # price of the first one after its owner lowers it
_SCREEN = 80  # columns
_FRAME = len("   │  │")
_FILE = "gpuwatch.toml"
_SETTINGS = """
timezone = "UTC"
database_url = "sqlite:///{folder}/demo.db"
dry_run = false

[budget]
max_usd_hour = 5.0
max_instances = 1

[providers.vastai]
base_url = "{url}"
api_key = "{key}"
commission = 0.20
poll_every = "1s"
search_interval = "0.2s"
sweep_every = "3s"
"""
_WATCH = """
[[watch]]
name = "h100-night"
gpu = ["{gpu}"]
max_price = {max_price}
action = "launch"
disk_gb = 50

[watch.launch]
image = "pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime"
max_runtime = "1h"
"""
ASKED_GPU, ASKED_USD_HOUR = "A100 SXM4", 0.60  # on sale while the page is open, for a watch that asks first
_PAGE_SETTINGS = """
[[watch]]
name = "a100-ask"
gpu = ["A100 SXM 80GB"]
max_price = 0.90
action = "ask"

[watch.launch]
max_runtime = "1h"
max_total = 0
approve_within = "1h"

[web]
listen = "127.0.0.1:0"
"""


class DemoFailed(Exception):
    """A step did not happen in time; the message states which one."""


class ScreenChannel:
    """An alert channel that shows each alert as Telegram would."""

    name = "screen"

    def __init__(self, print_line: PrintLine) -> None:
        self._print_line = print_line

    def send(self, alert: Alert) -> None:
        """Show it."""
        for line in _boxed(as_text(alert).splitlines()):
            self._print_line(line)


def run_demo(print_line: PrintLine, show_page: ShowPage | None = None) -> bool:
    """Run the demo. Returns whether every step happened; a failure is reported.

    Args:
        show_page: shows the web page over the demo's settings file until its owner has seen enough; None: no page.
    """
    print_line = wrapping(print_line)
    with TemporaryDirectory(prefix="gpuwatch-demo-") as folder:
        try:
            with demo_market() as (market, offer_id):
                settings = demo_settings(market, folder, _PAGE_SETTINGS if show_page else "")
                print_line(f"1. a marketplace on {market.url}: {_offers_text(market)}, simulated money")
                print_line(_recorded_history(settings, real_now()))
                with (
                    open_store(settings) as store,
                    running_service(settings, store, {"screen": ScreenChannel(print_line)}) as service,
                ):
                    _run_steps(print_line, settings, market, offer_id, store, service)
                    if show_page:
                        market.publish(gpu=ASKED_GPU, count=1, usd_hour=ASKED_USD_HOUR, gpu_ram=81920)
                        print_line("7. the daemon keeps running, and an A100 offer awaits your approval:")
                        show_page(settings, Path(folder, _FILE))
        except DemoFailed as failed:
            print_line(f"the demo failed: {failed}")
            return False
    print_line("")
    print_line("Next:")
    print_line("  gpuwatch check --gpu H100 --max-price 2.50   poll the real market, no key")
    print_line("  gpuwatch init                                five questions, then your settings")
    print_line("  gpuwatch run                                 start the daemon, as a dry run")
    return True


def _offers_text(market: Marketplace) -> str:
    return count_text(len(market.offers()), "offer")


def _recorded_history(settings: Settings, now: datetime) -> str:
    """Give the store a history, and say what it says about the demo's limit."""
    done = import_recorded(settings, now, dry_run=False, progress=_no_progress, provider=PROVIDER)
    asked = PriceHistoryRequest(
        gpu=GPU,
        scope=MarketFilter(gpu_count_max=1, spot=False),
        since=now - timedelta(days=15),
        until=now,
        data=None,
        every="1d",
        is_for_programs=False,
        zone=UTC,
        under_usd=(),
    )
    lowest = [point.min_microusd for point in price_history(settings, asked).track.points if point.min_microusd]
    return (
        f"   its history: {count_text(done.report.new, 'price')}, recorded in public from {RECORDED_SINCE} to"
        f" {RECORDED_UNTIL} and moved to end now: a day's cheapest {GPU} was {per_gpu_hour(min(lowest) / MICRO)} to"
        f" {per_gpu_hour(max(lowest) / MICRO)}"
    )


def wrapping(print_line: PrintLine) -> PrintLine:
    """Wrap long lines at 80 columns."""

    def print_wrapped(line: str) -> None:
        for part in wrap(line, _SCREEN, subsequent_indent="   ", break_on_hyphens=False) or [""]:
            print_line(part)

    return print_wrapped


def _run_steps(
    print_line: PrintLine, settings: Settings, market: Marketplace, offer_id: int, store: Database, service: Service
) -> None:
    print_line(f"2. the daemon watches for {GPU} at or under ${MAX_PRICE}/GPU-h, 20 % commission included")
    wait_until(lambda: service.polling.workers[PROVIDER].finished_rounds >= 3, "three polls")
    cheapest = CALM_USD_HOUR[0]
    listed, price = per_gpu_hour(cheapest), per_gpu_hour(cheapest * 1.2)
    print_line(f"   three polls, no alert: cheapest {listed} listed, {price} with commission")
    print_line(f"3. a host lowers its price to {per_gpu_hour(DROP_USD_HOUR)} listed. The next poll finds it:")
    market.reprice(offer_id, usd_hour=DROP_USD_HOUR)
    launch = wait_until(lambda: _running_launch(service), "a running instance")
    print_line(
        f"4. rented once and running: launch {launch.launch_id}, instance {launch.instance_id}, label {launch.label}"
    )
    time.sleep(1.5)
    print_line("5. ending the launch (gpuwatch launches stop):")
    if not stop(settings, [launch.launch_id], lambda line: print_line(f"   {line}"), actor="gpuwatch demo"):
        raise DemoFailed("the end of the instance was not confirmed")
    ended = service.launch_repository.get(launch.launch_id) or launch
    cost = cost_microusd(ended, real_now()) / MICRO
    print_line(f"   it cost ${cost:.4f}; create requests received by the marketplace: {len(market.ledger.creates)}")
    rows = read_store_stats(store).rows
    counts_text = f"{rows['poll']} polls, {rows['price_interval']} price intervals, {rows['series']} machines"
    print_line(f"6. recorded in the history: {counts_text}")


@contextmanager
def demo_market(machines: Path | None = None) -> Iterator[tuple[Marketplace, int]]:
    """The market, and the offer whose price falls. `machines`: where instances get a folder with an SSH server."""
    delays = Delays(running_s=2)
    with Marketplace(seed=7, key="demo-key", size=150, delays=delays, machines=machines) as market:
        for row in market.offers():
            if "H100" in str(row.get("gpu_name")):
                market.withdraw(row["id"])
        ids = [market.publish(gpu=GPU, count=1, usd_hour=price, storage_cost=0.05) for price in CALM_USD_HOUR]
        yield market, ids[0]


def demo_settings(market: Marketplace, folder: str, more: str = "", *, watches: bool = True) -> Settings:
    """Write settings to a file of the folder. `watches`: whether to include the demo's watch."""
    path = Path(folder) / _FILE
    text = _SETTINGS + (_WATCH if watches else "")
    text = text.format(folder=folder, url=market.url, key=market.key, gpu=GPU, max_price=MAX_PRICE)
    path.write_text(text + more, encoding="utf-8")
    path.chmod(0o600)
    return load(str(path), env={"STATE_DIRECTORY": folder}, cwd=Path(folder))


@contextmanager
def _no_progress(title: str) -> Iterator[Callable[[str, int, int], None]]:
    yield lambda what, done, total: None


def _running_launch(service: Service) -> Launch | None:
    return next((one for one in service.launch_repository.alive() if one.state is LaunchState.RUNNING), None)


def wait_until(condition: Callable[[], T | None], event_name: str, within_s: float = 25.0) -> T:
    """The first result of `condition`. Raises DemoFailed: there was none in time."""
    ends_at = real_monotonic() + within_s
    while real_monotonic() < ends_at:
        result = condition()
        if result:
            return result
        time.sleep(0.1)
    raise DemoFailed(f"timed out after {within_s:.0f} s waiting for {event_name}")


def _boxed(lines: list[str]) -> Iterator[str]:
    lines = [part for line in lines for part in (wrap(line, _SCREEN - _FRAME, subsequent_indent="  ") or [""])]
    width = max((len(line) for line in lines), default=0)
    yield f"   ┌─{'─' * width}─┐"
    for line in lines:
        yield f"   │ {line.ljust(width)} │"
    yield f"   └─{'─' * width}─┘"
