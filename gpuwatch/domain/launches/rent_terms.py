"""What a person rents without a watch: one offer, priced, for a certain time (`gpuwatch rent`). Pure.

It becomes a quote that the same person approves, and so a launch like any other: its watch exists for it alone.
"""

from __future__ import annotations

import msgspec

from gpuwatch.domain.market.offer import Offer
from gpuwatch.domain.watches.launch_spec import LaunchSpec
from gpuwatch.domain.watches.watch import HIGHEST_USD, Action, CpuArch, SpotPolicy, Watch

RENT_OPEN_S = 300.0  # how long a priced offer can be confirmed
_MOST_AT_ONCE = 1000  # launches; the budgets are the limit


class RentTerms(msgspec.Struct, frozen=True, kw_only=True):
    """How to rent the offer; None: the default."""

    max_runtime_s: float
    image: str | None = None
    disk_gb: float | None = None


def rent_watch(name: str, offer: Offer, terms: RentTerms) -> Watch:
    """Return the watch that matches this offer alone, whatever it costs: the quote limits its price.

    Args:
        name: under which its launches are stored.
    """
    spec = LaunchSpec(
        max_runtime_s=terms.max_runtime_s,
        max_active=_MOST_AT_ONCE,
        max_total=0,
        max_tries=1,
        approve_within_s=RENT_OPEN_S,
    )
    if terms.image is not None:
        spec = msgspec.structs.replace(spec, image=terms.image)
    return Watch(
        name=name,
        renamed_from="",  # it is no watch of the settings under another name
        gpu=(offer.gpu,),
        gpu_names=(offer.gpu,),
        gpu_count_min=offer.gpu_count,
        gpu_count_max=offer.gpu_count,
        max_price_usd_gpu_hour=HIGHEST_USD,
        unlimited=True,
        action=Action.ASK,
        providers=(offer.provider,),
        spot=SpotPolicy.ONLY if offer.spot else SpotPolicy.NO,
        cpu_arch=CpuArch.ANY,
        disk_gb=terms.disk_gb,
        launch=spec,
    )
