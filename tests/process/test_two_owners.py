"""Two watch lists on one PostgreSQL, each with its owner: nobody retires, sends or rents for the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.emulator import Delays, Marketplace
from tests.process.audit import launches, rows
from tests.process.crash_matrix import somebody_rents
from tests.process.daemon_child import Home, notify_by, terminate, wait_for
from tests.process.two_daemons import KEY
from tests.telegram_double import TelegramDouble, telegram

pytestmark = pytest.mark.slow

SETTINGS = """
owner = "{owner}"
dry_run = false
database_url = "{database_url}"

[budget]
max_usd_hour = 2.0

[providers.vastai]
base_url = "{url}"
api_key = "{key}"
poll_every = "1s"
search_interval = "0.05s"
sweep_every = "1h"
rows_per_day = 0

{notify}
[[watch]]
name = "cheap"
gpu = ["{gpu}"]
max_price = 2.40
action = "launch"

[watch.launch]
max_runtime = "48h"
max_active = 5
max_total = 5
"""


@pytest.fixture
def market() -> Iterator[Marketplace]:
    with Marketplace(seed=5, key=KEY, size=0, delays=Delays(running_s=0.1)) as opened:
        somebody_rents(opened, KEY)
        yield opened


@pytest.fixture
def doubles() -> Iterator[tuple[TelegramDouble, TelegramDouble]]:
    with telegram() as first, telegram() as second:
        yield first, second


def home_of(folder: Path, owner: str, gpu: str, market: Marketplace, url: str, double: TelegramDouble) -> Home:
    folder.mkdir()
    home = Home(folder, market.url, database_url=url)
    text = SETTINGS.format(owner=owner, gpu=gpu, url=market.url, key=KEY, database_url=url, notify=notify_by(double))
    (folder / "gpuwatch.toml").write_text(text)
    return home


def in_use(url: str) -> set[str]:
    return {str(row["name"]) for row in rows(url, "SELECT name FROM watch_identity WHERE retired_at_ms IS NULL")}


def test_a_host_that_gets_an_owner_says_what_it_leaves_behind_and_takes_it_over(
    tmp_path: Path, market: Marketplace, doubles: tuple[TelegramDouble, TelegramDouble]
) -> None:
    """What was stored without an owner is the installation's; nothing of it ends, and one command moves it."""
    url, double = f"sqlite:///{tmp_path}/gpuwatch.db", doubles[0]
    home = home_of(tmp_path / "a", "", "H100", market, url, double)
    file = home.folder / "gpuwatch.toml"

    def running() -> list[str]:
        return [str(one["watch"]) for one in launches(url) if one["state"] == "running"]

    with home.daemon() as child:
        market.publish(gpu="H100 SXM", count=1, usd_hour=1.5)
        wait_for(lambda: running() == ["cheap"])
        assert terminate(child)[0] == 0
    file.write_text(file.read_text().replace('owner = ""', 'owner = "lab"'))
    with home.daemon() as child:
        wait_for(lambda: any("take-over --all --from ''" in one.text for one in double.shown))
        taken = home.run("watches", "take-over", "--all", "--from", "")
        assert (taken.returncode, taken.stdout.splitlines()[0]) == (0, "watches: cheap"), taken.stderr
        assert running() == ["lab::cheap"]
        stopped = home.run("launches", "stop", "--all", "--yes")
        assert stopped.returncode == 0, stopped.stderr
        wait_for(lambda: any(one["state"] == "ended" for one in launches(url)))  # its watch may rent anew at once
        assert terminate(child)[0] == 0
    again = home.run("watches", "take-over", "--all", "--from", "lab")
    assert (again.returncode, "the same owner" in again.stderr) == (2, True)
    assert "Traceback" not in home.log()


def test_two_lists_rent_send_and_count_for_themselves(
    tmp_path: Path, market: Marketplace, store_url: str, doubles: tuple[TelegramDouble, TelegramDouble]
) -> None:
    own = home_of(tmp_path / "a", "", "H100", market, store_url, doubles[0])
    lab = home_of(tmp_path / "b", "lab", "RTX 4090", market, store_url, doubles[1])

    def running() -> list[str]:
        return sorted(str(one["watch"]) for one in launches(store_url) if one["state"] == "running")

    with own.daemon() as first, lab.daemon() as second:
        market.publish(gpu="H100 SXM", count=1, usd_hour=1.5)
        market.publish(gpu="RTX 4090", count=1, usd_hour=1.5)  # both within $2 an hour, together beyond it
        wait_for(lambda: running() == ["cheap", "lab::cheap"])
        for double in doubles:
            wait_for(lambda double=double: any("running" in one.text for one in double.shown))
        assert [terminate(child)[0] for child in (first, second)] == [0, 0]
    with own.daemon() as first, lab.daemon() as second:  # a start reads the list again
        market.publish(gpu="H100 SXM", count=1, usd_hour=1.0)  # beyond the budget of its own list
        wait_for(lambda: any("hourly budget" in one.text for one in doubles[0].shown))
        assert [terminate(child)[0] for child in (first, second)] == [0, 0]
    assert in_use(store_url) == {"cheap", "lab::cheap"}
    assert running() == ["cheap", "lab::cheap"]
    sent = [[one.text for one in double.shown] for double in doubles]
    assert not [text for text in sent[0] if "lab::" in text or "4090" in text]
    assert not [text for text in sent[1] if "H100" in text]
    assert [text for text in sent[1] if "lab::cheap" in text]
    # the picture after an alert names its GPU alone
    assert not [text for text in sent[1] if "lab::cheap" not in text and not text.startswith("RTX 4090: ")]
    assert {str(row["channel"]) for row in rows(store_url, "SELECT channel FROM delivery")} == {
        "telegram",
        "lab::telegram",
    }
    assert "Traceback" not in own.log() + lab.log()
