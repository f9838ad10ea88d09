"""The nearest offer of a watch without a match: the cheapest that only the price limit rejects, and how near it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from gpuwatch import providers
from gpuwatch.domain.market.figure_text import percent_text
from gpuwatch.domain.market.json_view import JsonView
from gpuwatch.domain.market.money import MICRO, per_unit_hour
from gpuwatch.domain.market.offer import hardware_text

if TYPE_CHECKING:
    from gpuwatch.domain.watches.decide import Match
    from gpuwatch.domain.watches.watch import Watch

UNDER_DAYS = 7
_UNDER = {0: "never under it", 1: "under it once"}


class NearestView(JsonView, frozen=True, kw_only=True):
    """The cheapest offer that only its price excludes."""

    provider: str
    offer_id: str
    gpu: str
    gpu_count: int
    spot: bool
    price_usd_gpu_hour: Annotated[float, Meta(description="Commission included.")]
    above_limit: Annotated[float, Meta(description="0.12: 12 % above the limit.")]
    times_under_7d: Annotated[
        int | None,
        Meta(description="How often the lowest price came under the limit in the last 7 days. Null: not recorded."),
    ]
    sentence: str


def nearest_view(watch: Watch, nearest: Match | None, times_under: int | None = None) -> NearestView | None:
    """The nearest offer above the limit, for a watch whose limit is a price; None: there is none."""
    limit = watch.max_price_usd_gpu_hour
    if nearest is None or watch.unlimited or watch.max_job_cost_usd is not None or not limit:
        return None
    offer, price = nearest.offer, nearest.price.gpu_price_usd_hour(nearest.offer.gpu_count)
    above = float(price / limit) - 1
    if above <= 0:
        return None
    what = offer.gpu if offer.gpu_count == 1 else hardware_text(offer.gpu, offer.gpu_count)
    share = percent_text(above, 0) if above >= 0.005 else "less than 1 %"
    place = f"{per_unit_hour(price, offer.gpu_count)} at {provider_title(offer.provider)}"
    sentence = f"nearest: {what}{', spot' if offer.spot else ''}, {place}, {share} above your limit"
    if times_under is not None:
        under = _UNDER.get(times_under, f"under it {times_under} times")
        sentence += f"; {under} in the last {UNDER_DAYS} days"
    return NearestView.of(
        offer,
        price_usd_gpu_hour=nearest.price_microusd_gpu_hour / MICRO,
        above_limit=round(above, 6),
        times_under_7d=times_under,
        sentence=sentence,
    )


def provider_title(provider: str) -> str:
    """ "vast.ai": the name for people; of an unknown provider, its own."""
    return providers.info(provider).title if provider in providers.names() else provider
