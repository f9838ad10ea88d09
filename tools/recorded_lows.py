"""Writes the public prices that `gpuwatch init` shows without an own history: `python -m tools.recorded_lows`.

The lowest listed price of each day, provider and GPU, of single on-demand GPUs, from `tests/recorded/price-history`.
"""

from __future__ import annotations

import csv
import gzip
from decimal import Decimal
from pathlib import Path

from gpuwatch.domain.market.gpu_names import catalog

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "gpuwatch" / "app" / "setup" / "first_watch" / "recorded-lows.csv"
_SERIES = ROOT / "tests" / "recorded" / "price-history"
_FILES = ("primeintellect-best-2025-10-19_11-03", "vastai-offers-2026-02-27_03-03")
_HEAD = """\
# vast.ai: github.com/ccir-index/cri-h100, MIT, (c) 2026 CCIR - Compute Credit Index Research
# Prime Intellect: github.com/tugot17/gpu-price-tracker, MIT, (c) 2025 Piotr Mazurek
provider,gpu,day,usd_gpu_hour
"""


def recorded_lows() -> str:
    """The content of the file."""
    lows: dict[tuple[str, str, str], Decimal] = {}
    for name in _FILES:
        with gzip.open(_SERIES / f"{name}.csv.gz", "rt", encoding="utf-8") as rows:
            for row in csv.DictReader(rows):
                if row["spot"] != "false" or row["gpu_count"] != "1":
                    continue
                gpu = catalog().resolve(row["gpu_name_raw"], float(row["gpu_mem_gib"] or 0) or None).name
                key = row["provider"].partition(":")[0], gpu, row["observed_at"][:10]
                price = Decimal(row["price_usd_hour"])
                lows[key] = min(price, lows.get(key, price))
    return _HEAD + "".join(f"{','.join(key)},{price.normalize():f}\n" for key, price in sorted(lows.items()))


if __name__ == "__main__":
    TARGET.write_text(recorded_lows(), encoding="utf-8")
