"""What a person rents without a watch: one offer, priced, for a certain time (`gpuwatch rent`). Pure.

It becomes a quote that the same person approves, and so a launch like any other: its watch exists for it alone.
"""

from __future__ import annotations

import msgspec

from gpuwatch.domain.market.offer import Offer
from gpuwatch.domain.watches.launch_spec import EndPolicy, LaunchSpec, PriceIncreasePolicy, VerificationMode
from gpuwatch.domain.watches.watch import HIGHEST_USD, Action, CpuArch, SpotPolicy, Watch

RENT_OPEN_S = 300.0  # how long a priced offer can be confirmed
_MOST_AT_ONCE = 1000  # launches; the budgets are the limit
_OF_LAUNCH = ("image", "verify", "ssh_key", "ready_within_s", "idle_below", "idle_for_s", "on_price_increase")


class RentDefaults(msgspec.Struct, frozen=True, kw_only=True):
    """What `[defaults.watch]` says of a machine and its end, and a rent does not; None: not said either.

    Nothing else of it applies: a rent has its offer, its time and its price, is one launch, and its terms are stored,
    so no secrets (`env`, `registry`) and no hooks are among them.
    """

    image: str | None = None
    disk_gb: float | None = None
    verify: VerificationMode | None = None
    ssh_key: str | None = None
    ready_within_s: float | None = None
    idle_below: float | None = None
    idle_for_s: float | None = None
    on_price_increase: PriceIncreasePolicy | None = None
    on_end: EndPolicy | None = None
    keep_disk_for_s: float | None = None


class RentTerms(RentDefaults, frozen=True, kw_only=True):
    """How to rent the offer; None: the default.

    Attributes:
        open_s: how long it can be confirmed.
    """

    max_runtime_s: float
    open_s: float = RENT_OPEN_S

    def with_defaults(self, defaults: RentDefaults) -> RentTerms:
        """Return the terms with what they leave out."""
        names = RentDefaults.__struct_fields__
        left_out = {name: getattr(defaults, name) for name in names if getattr(self, name) is None}
        return msgspec.structs.replace(self, **left_out)

    def said(self, *names: str) -> dict[str, object]:
        """Return those of these fields that are stated."""
        return {name: value for name in names if (value := getattr(self, name)) is not None}


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
        approve_within_s=terms.open_s,
    )
    spec = msgspec.structs.replace(spec, **terms.said(*_OF_LAUNCH))
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
        **terms.said("on_end", "keep_disk_for_s"),  # type: ignore[arg-type]
    )
