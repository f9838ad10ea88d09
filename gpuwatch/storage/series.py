"""The stored market as one lowest price an hour."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from gpuwatch.analysis.series import HOUR_S, PriceSeries
from gpuwatch.market.pricing import Commission
from gpuwatch.storage.database import Database
from gpuwatch.storage.questions import Part, price_track
from gpuwatch.storage.recording import seconds


def read_series(
    database: Database, part: Part, since: datetime, until: datetime, commissions: Mapping[str, Commission]
) -> PriceSeries:
    """From the first hour that anybody looked in, the running hour as far as it went; commission included.

    Raises:
        StoreError: the database cannot be read.
    """
    points = price_track(database, part, since, until, commissions=commissions)
    first = next((at for at, point in enumerate(points) if point.looked), len(points))
    points = points[first:]
    return PriceSeries(
        first_hour=seconds(points[0].starts_at) // HOUR_S if points else 0,
        lows=[point.min_with_commission_microusd for point in points],
        looked=[point.looked for point in points],
        source="the store",
    )
