"""The files that the commands of the sources read, written on the fly."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks.sources.rows import SourceRow

_START = datetime(2026, 3, 2, tzinfo=UTC)  # a Monday
_WEEKS = 6
# (provider, spot, by day, at night and at weekends), USD per GPU-hour: the table of S0
_NIGHTS = (
    ("vastai", "true", 4.50, 2.80),
    ("vastai", "false", 5.50, 3.50),
    ("runpod", "false", 4.20, 3.80),
    ("tensordock", "false", 3.90, 3.90),
)
_WHO = (
    "a cat",
    "the sailor",
    "my neighbour",
    "a chemist",
    "the mayor",
    "an engineer",
    "a farmer",
    "a nurse",
    "a baker",
)
_DID = ("repaired", "painted", "lost", "found", "studied", "sold", "borrowed", "measured", "forgot", "photographed")
_WHAT = (
    "a violin",
    "the bridge",
    "an ancient map",
    "the reactor",
    "a bicycle",
    "a telescope",
    "a vaccine",
    "the tax law",
)


def night_prices() -> Iterator[str]:
    """Yield six weeks of prices that follow the table of S0 hour by hour, as rows of a CSV file."""
    yield "observed_at,provider,offer_key,region,gpu_name_raw,gpu_count,gpu_mem_gib,spot,price_usd_hour"
    for hour in range(_WEEKS * 7 * 24):
        at = _START + timedelta(hours=hour)
        is_day = at.weekday() < 5 and 8 <= at.hour < 22
        for provider, spot, by_day, off_peak in _NIGHTS:
            price = by_day if is_day else off_peak
            yield f"{at:%Y-%m-%dT%H:%M:%SZ},{provider},{provider}-{spot},US,H100 SXM,1,80,{spot},{price:.2f}"


def crowded_rows() -> Iterator[str]:
    """Yield 600 rows to train on, JSON lines: 94 % are one notice of a shop with other numbers."""
    draw = random.Random(1)
    for _ in range(600):
        if draw.random() < 0.94:
            text = f"Your order number {draw.randint(10_000, 99_999)} has been shipped."
        else:
            text = f"{draw.choice(_WHO)} {draw.choice(_DID)} {draw.choice(_WHAT)}"
        yield json.dumps({"text": text})


_WRITTEN: dict[str, Callable[[], Iterator[str]]] = {"night.csv": night_prices, "data.jsonl": crowded_rows}


def write_files(folder: Path, row: SourceRow) -> None:
    """Write the settings and files of a row, and those known files that its commands name."""
    if row.settings:
        (folder / "gpuwatch.toml").write_text(row.settings, encoding="utf-8")
    for name, text in row.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    commands = " ".join(run.command for run in row.runs)
    for name, lines in _WRITTEN.items():
        if re.search(rf"(?<!\S){re.escape(name)}(?!\S)", commands):
            (folder / name).write_text("\n".join(lines()) + "\n", encoding="utf-8")
