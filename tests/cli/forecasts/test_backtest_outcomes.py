"""`gpuwatch forecasts backtest` and its sweep on whole files agree with a reference that simulates each start."""

from __future__ import annotations

import csv
import gzip
import random
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import SERIES, Shell
from tests.domain.forecasts.outcome_reference import Poll, mean_paid, outcome

COLUMNS = "observed_at,provider,offer_key,region,gpu_name_raw,gpu_count,gpu_mem_gib,spot,price_usd_hour"
START = 1_770_000_000
LASTS_S = 3 * 3600.0
HOUR = 3600.0


def a_market(path: Path, seed: int) -> list[tuple[int, float | None]]:
    """Polls at all distances, offers that come and go, hours with nothing on offer; with 20 % of commission."""
    chance, at, offers = random.Random(seed), START, dict[str, float]()
    polls: list[tuple[int, float | None]] = []
    rows: list[Sequence[object]] = [COLUMNS.split(",")]
    for number in range(160):
        at += chance.choices([600, 1800, 3600, 7200, 10_800, 10_801, 20_000, 200_000], [3, 4, 6, 3, 1, 1, 1, 0.3])[0]
        offers = {key: usd for key, usd in offers.items() if chance.random() > 0.2}
        if chance.random() < 0.2:
            offers[f"o{number}"] = round(chance.uniform(1.0, 4.0), 6)
        moment = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        rows.append((moment, "vastai", "", "", "H100 SXM", "", "", "false", ""))
        rows += [
            (moment, "vastai", f"{key}/ondemand", "", "H100 SXM", 1, 80, "false", usd) for key, usd in offers.items()
        ]
        polls.append((at, min((round(usd * 1.2e6) / 1e6 for usd in offers.values()), default=None)))
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return polls


def public_polls(gpu: str, count: int) -> list[tuple[int, float | None]]:
    """Each moment of the file is a poll; an offer that it lacks was not on sale."""
    found: dict[int, float | None] = {}
    with gzip.open(SERIES, "rt", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            at = int(datetime.fromisoformat(row["observed_at"]).timestamp())
            found.setdefault(at, None)
            if row["gpu_name_raw"].startswith(gpu) and int(row["gpu_count"]) == count and row["spot"] == "false":
                usd, least = float(row["price_usd_hour"]) / count, found[at]
                found[at] = usd if least is None or usd < least else least
    return sorted(found.items())


def expected(polls: Iterable[tuple[int, float | None]], limit: float, deadline_h: float) -> dict[str, Any]:
    """Starts at the first poll of every hour."""
    seen = [Poll(float(at), usd, usd if usd is not None and usd <= limit else None) for at, usd in polls]
    first = [at for at in range(len(seen)) if not at or seen[at].at_s // HOUR > seen[at - 1].at_s // HOUR]
    ends = [outcome(seen, at, deadline_h * HOUR, LASTS_S) for at in first]
    kinds = [end.kind for end in ends]
    means = mean_paid(ends)
    counts = {kind: kinds.count(kind) for kind in ("bought", "missed", "unknown")}
    return {"starts": len(first), **counts, "means": means}


def check(found: Mapping[str, Any], wanted: Mapping[str, Any], paid: str, once: str) -> None:
    assert found["starts"] == found["bought"] + found["missed"] + found["unknown"]
    assert {key: found[key] for key in wanted if key != "means"} == {
        key: value for key, value in wanted.items() if key != "means"
    }
    means = None if found[paid] is None else (found[paid], found[once])
    assert means == (None if wanted["means"] is None else pytest.approx(wanted["means"], abs=2e-6))


@pytest.mark.parametrize(("seed", "limit", "deadline_h"), [(1, 1.5, 6), (2, 2.5, 48), (3, 0.5, 12), (4, 3.6, 0.5)])
def test_a_backtest_of_a_random_market(shell: Shell, seed: int, limit: float, deadline_h: float) -> None:
    polls = a_market(shell.folder / "market.csv", seed)
    rule = ("--gpu", "H100 SXM", "--deadline", f"{deadline_h * 60:.0f}m", "--data", "market.csv", "--json")
    found = shell("backtest", "--max-price", str(limit), *rule).json["watches"][0]["waiting"]
    check(found, expected(polls, limit, deadline_h), "paid_usd_gpu_hour", "at_once_usd_gpu_hour")
    for step in shell("backtest", "--sweep", "max_price=1.2:3.6:1.2", *rule).json["steps"]:
        wanted = expected(polls, step["max_price_usd_gpu_hour"], deadline_h)
        check(step, wanted, "mean_paid_usd_gpu_hour", "mean_at_once_usd_gpu_hour")


@pytest.mark.parametrize(
    ("gpu", "raw", "limit", "deadline_h"), [("H100", "H100", 1.85, 24), ("A100 PCIe 80GB", "A100_80GB_PCIe", 0.9, 12)]
)
def test_the_two_cases_whose_saving_was_once_overstated(
    shell: Shell, gpu: str, raw: str, limit: float, deadline_h: float
) -> None:
    """On the public series; earlier only starts with an offer at their deadline were counted."""
    polls = public_polls(raw, 8)
    rule = ("--gpu", gpu, "--count", "8", "--max-price", str(limit), "--deadline", f"{deadline_h}h")
    ran = shell("backtest", *rule, "--data", str(SERIES), "--json")
    wanted = expected(polls, limit, deadline_h)
    check(ran.json["watches"][0]["waiting"], wanted, "paid_usd_gpu_hour", "at_once_usd_gpu_hour")
