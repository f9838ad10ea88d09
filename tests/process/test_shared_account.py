"""Two owners on one PostgreSQL search with one account as often as one does; with two accounts, each for itself."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import pytest

from gpuwatch.emulator import Delays, Marketplace
from tests.process.audit import launches
from tests.process.crash_matrix import somebody_rents
from tests.process.daemon_child import Home, terminate, wait_for
from tests.process.two_daemons import KEY, home_of

pytestmark = pytest.mark.slow

INTERVAL_S = 1.5  # longer than poll_every: one owner alone uses every turn
LATE_S = 0.5  # of a request on a busy machine
MEASURED = 12  # searches
OF_OWNER = {"": "H100", "lab": "RTX 4090"}
OTHER_KEY = "vast-key-of-another-account-91d4"


def home(folder: Path, market: Marketplace, url: str, owner: str, key: str = KEY) -> Home:
    made = home_of(folder, market.url, url, {"cheap": OF_OWNER[owner]})
    path = made.folder / "gpuwatch.toml"
    text = path.read_text().replace('search_interval = "0.01s"', f'search_interval = "{INTERVAL_S}s"')
    path.write_text(f'owner = "{owner}"\n' + text.replace(KEY, key))
    return made


def searches(market: Marketplace, gpu: str = "") -> list[float]:
    return [
        one.arrived_ns / 1e9
        for one in tuple(market.requests)
        if one.path.startswith("/api/v0/bundles") and gpu in str(one.sent).replace("_", " ")
    ]


def assert_as_one(times: Sequence[float]) -> None:
    """As often as one process may, and no two closer together: a late request may be followed by one in time."""
    assert min(later - earlier for earlier, later in pairwise(times)) > INTERVAL_S - LATE_S
    wanted = (times[-1] - times[0]) / INTERVAL_S
    assert wanted * 0.85 < len(times) - 1 <= wanted + LATE_S / INTERVAL_S


@pytest.mark.parametrize("owners", [1, 2])
def test_any_number_of_owners_searches_with_one_account_as_often_as_one(
    tmp_path: Path, store_url: str, owners: int
) -> None:
    with Marketplace(seed=3, key=KEY, size=0, delays=Delays(running_s=0.2)) as market, ExitStack() as stack:
        somebody_rents(market, KEY)
        homes = [home(tmp_path / f"of{owner}", market, store_url, owner) for owner in list(OF_OWNER)[:owners]]
        children = []
        for one in homes:
            children.append(stack.enter_context(one.daemon()))
            wait_for(lambda one=one: "watching" in one.log())
        gpus = list(OF_OWNER.values())[:owners]
        wait_for(lambda: all(searches(market, gpu) for gpu in gpus))
        before = len(searches(market))
        wait_for(lambda: len(searches(market)) >= before + MEASURED)
        times = searches(market)[before:]
        assert_as_one(times)
        shares = [sum(times[0] <= at_s <= times[-1] for at_s in searches(market, gpu)) for gpu in gpus]
        assert max(shares) - min(shares) <= 2
        roles = [one["role"] for one in json.loads(homes[0].run("hosts", "--json").stdout)]
        assert roles == (["main"] if owners == 1 else ["main", "main/lab", "vastai/123456"])
        for gpu in gpus:
            market.publish(gpu=gpu.replace("H100", "H100 SXM"), count=1, usd_hour=1.5)
        matched = ["cheap", "lab::cheap"][:owners]
        wait_for(lambda: sorted(str(row["watch"]) for row in launches(store_url)) == matched)
        assert min(later - earlier for earlier, later in pairwise(searches(market))) > INTERVAL_S - LATE_S
        assert [terminate(child)[0] for child in children] == [0] * owners


def test_owners_with_accounts_of_their_own_do_not_wait_for_each_other(tmp_path: Path, store_url: str) -> None:
    with (
        Marketplace(seed=3, key=KEY, size=0) as market,
        Marketplace(seed=4, key=OTHER_KEY, size=0, account_id=654321) as other,
    ):
        own, lab = home(tmp_path / "a", market, store_url, ""), home(tmp_path / "b", other, store_url, "lab", OTHER_KEY)
        with own.daemon() as first, lab.daemon() as second:
            wait_for(lambda: bool(searches(market) and searches(other)))
            before = [len(searches(one)) for one in (market, other)]
            wait_for(lambda: len(searches(market)) >= before[0] + MEASURED)
            for one, count in zip((market, other), before, strict=True):
                assert_as_one(searches(one)[count:])
            assert [terminate(child)[0] for child in (first, second)] == [0, 0]
