"""What to ask a market for a watch."""

from __future__ import annotations

from gpuwatch.domain.market.pricing import Commission, listed_ceiling_usd
from gpuwatch.domain.watches.watch import SpotPolicy, Watch
from gpuwatch.engine.row_budget import HUNT_ROWS
from gpuwatch.ports import Query

RENTAL_TYPES = {SpotPolicy.NO: (False,), SpotPolicy.ONLY: (True,), SpotPolicy.ANY: (False, True)}  # spot?


def queries_for(watch: Watch, commission: Commission, limit: int | None = HUNT_ROWS) -> tuple[Query, ...]:
    """What to ask a market for one watch: one query per rental type that it wants.

    Only filters that marketplaces apply correctly are sent; the rest is checked here.
    """
    ceiling = listed_ceiling_usd(watch.max_price_usd_gpu_hour, watch.gpu_count_max, commission)
    return tuple(
        Query(
            gpus=watch.gpu_names,
            count_min=watch.gpu_count_min,
            count_max=watch.gpu_count_max,
            spot=spot,
            disk_gb=watch.disk_gb,
            max_listed_usd_hour=float(ceiling) * watch.rearm,
            verified=watch.verified or None,
            min_reliability=watch.min_reliability,
            limit=limit,
        )
        for spot in RENTAL_TYPES[watch.spot]
    )
