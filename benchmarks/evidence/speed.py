"""The processor time of importing, importing again, and a backtest on a file."""

from __future__ import annotations

import os
import random
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks.evidence.claims import Claim, Holds, Section, judged
from benchmarks.figures import Figure

ROWS = 1_000_000  # the claims are about a million
MOST_IMPORT_S, MOST_AGAIN_S = 6.0, 3.0
_COLUMNS = "observed_at,provider,offer_key,region,gpu_name_raw,gpu_count,gpu_mem_gib,spot,price_usd_hour"
_MODELS = (("H100 SXM", 80), ("RTX 4090", 24), ("A100 PCIE", 80), ("L40S", 48), ("RTX 3090", 24), ("H200", 141))
_OFFERS, _CHANGED, _COMES_OR_GOES = 1000, 0.1, 0.02


def speed_section(rows: int) -> Section:
    """Return the claims for a file of this size: a thousand offers every half hour, a tenth of them repriced."""
    with tempfile.TemporaryDirectory(prefix="gpuwatch-evidence-") as folder:
        path = Path(folder) / "prices.csv"
        write_rows(path, rows)
        env = dict(os.environ) | {"GPUWATCH_DATABASE_URL": f"sqlite:///{folder}/store.db", "NO_COLOR": "1"}
        once, again = (_seconds(["store", "import", str(path)], env, folder) for _ in range(2))
        rule = ["backtest", "--gpu", "H100", "--max-price", "1", "--since", "all"]
        stored = _seconds(rule, env, folder)
        filed = _seconds([*rule, "--data", str(path)], env, folder)
    sample = f"{rows:,} rows"
    is_whole = rows >= ROWS
    claims = [
        _at_most("import", once, MOST_IMPORT_S, sample, is_claimed=is_whole),
        _at_most("the same import again", again, MOST_AGAIN_S, sample, is_claimed=is_whole),
        _at_most("backtest on the file, against the store's", filed / stored, 2.0, sample, is_claimed=False, unit="×"),
    ]
    notes = [
        "processor time of the whole command, its start included, on the machine that wrote this page",
        f"{_OFFERS} synthetic offers, a poll every 30 minutes, {_CHANGED:.0%} of the prices change between two polls",
    ]
    return Section("Import", "data.md", claims, notes)


def figures(rows: int = ROWS) -> list[Figure]:
    """Return the processor time of an import, for `make bench`."""
    with tempfile.TemporaryDirectory(prefix="gpuwatch-bench-") as folder:
        path = Path(folder) / "prices.csv"
        write_rows(path, rows)
        env = dict(os.environ) | {"GPUWATCH_DATABASE_URL": f"sqlite:///{folder}/store.db", "NO_COLOR": "1"}
        took_s = _seconds(["store", "import", str(path)], env, folder)
    name = f"`gpuwatch store import` of {rows:,} rows, processor time"
    return [Figure(name=name, goal=MOST_IMPORT_S, measured=took_s, unit=" s", sample="n = 1, the whole command")]


def write_rows(path: Path, rows: int) -> None:
    """Yield synthetic price rows, the same each time."""
    rng = random.Random(7)
    offers = [[*rng.choice(_MODELS), rng.choice([1, 2, 4, 8]), rng.uniform(0.2, 4), True] for _ in range(_OFFERS)]
    at, written = datetime(2026, 1, 1, tzinfo=UTC), 0
    with path.open("w", encoding="utf-8") as file:
        file.write(_COLUMNS + "\n")
        while written < rows:
            moment = f"{at:%Y-%m-%dT%H:%M:%SZ}"
            for number, offer in enumerate(offers):
                offer[4] ^= rng.random() < _COMES_OR_GOES
                offer[3] *= rng.uniform(0.95, 1.05) if rng.random() < _CHANGED else 1
                if offer[4] and written < rows:
                    name, memory, count, price, _ = offer
                    file.write(f"{moment},vastai,{number}/ondemand,,{name},{count},{memory},false,{price:.6f}\n")
                    written += 1
            at += timedelta(minutes=30)


def _seconds(arguments: Sequence[str], env: dict[str, str], folder: str) -> float:
    """Return the processor seconds of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "gpuwatch", *arguments], env=env, cwd=folder, check=True, stdout=subprocess.DEVNULL
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _at_most(text: str, value: float, limit: float, sample: str, *, is_claimed: bool, unit: str = " s") -> Claim:
    holds = judged(value <= limit) if is_claimed else Holds.NOT_CLAIMED
    return Claim(text, f"{value:.1f}{unit}", f"≤ {limit:g}{unit}" if is_claimed else "", sample, holds)
