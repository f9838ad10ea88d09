"""Two weeks of prices that somebody recorded and published, for a store that has no history of its own yet.

The rows are real and old. They are moved in time so that the last one is of now, and every face shows them as
imported: under the provider `recorded`, or, in a demo, as those of its simulated market. Source and licence:
recorded-prices.LICENSE.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

RECORDED = "recorded"  # the provider of these rows
RECORDED_SINCE, RECORDED_UNTIL = "2025-10-19", "2025-11-03"  # when they were true
_FILE = Path(__file__).with_name("recorded-prices.csv.gz")
_MOMENT = "%Y-%m-%dT%H:%M:%SZ"


@contextmanager
def recorded_prices(now: datetime, provider: str = RECORDED) -> Iterator[Path]:
    """A file of price rows like any other, whose last moment is `now`; deleted afterwards.

    Args:
        provider: whose prices they are said to be; only `RECORDED` keeps their sellers.
    """
    with gzip.open(_FILE, "rt", encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    moved = _moved({row[0] for row in rows[1:]}, now)
    whose = rows[0].index("provider")
    for row in rows[1:]:
        row[0] = moved[row[0]]
        row[whose] = row[whose] if provider == RECORDED else provider
    with TemporaryDirectory(prefix="gpuwatch-recorded-") as folder:
        path = Path(folder, "recorded-prices.csv")
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(rows)
        yield path


def _moved(texts: set[str], now: datetime) -> dict[str, str]:
    moments = {text: datetime.strptime(text, _MOMENT).replace(tzinfo=UTC) for text in texts}
    by = now.astimezone(UTC).replace(microsecond=0) - max(moments.values())
    by -= by % timedelta(hours=1)  # hours of the day stay nearly what they were
    return {text: (moment + by).strftime(_MOMENT) for text, moment in moments.items()}
