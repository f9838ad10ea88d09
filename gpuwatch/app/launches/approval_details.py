"""What an owner must know to answer an approval: limit, rank, the most it can cost, what is left, the odds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from gpuwatch.app.launches.approvals import ApprovalView, approval_view, watches_that_rent
from gpuwatch.app.launches.budget_uses import spending_now
from gpuwatch.app.launches.most_cost import most_cost_microusd, quoted_launch
from gpuwatch.app.market.market_ranks import RANK_DAYS, GpuRank, market_ranks
from gpuwatch.app.market.outbid_risk import OutbidRiskView, risk_of, risk_view
from gpuwatch.app.watches.current_limits import current_limits
from gpuwatch.bootstrap import open_store_read_only
from gpuwatch.domain.history.market_history import MarketFilter
from gpuwatch.domain.history.past_lows import rank_price
from gpuwatch.domain.launches.life.owner_decisions import ApprovalState
from gpuwatch.domain.market.json_view import usd_number
from gpuwatch.domain.market.money import MICRO, REFERENCE_DISK_GB
from gpuwatch.domain.market.price_rank import PriceRange
from gpuwatch.engine.launches.renting.owner_decisions import watch_bound_to_quote
from gpuwatch.errors import StoreNotReady, UsageError
from gpuwatch.storage.launches.launch_totals import SqlLaunchTotals

if TYPE_CHECKING:
    from gpuwatch.domain.launches.life.owner_decisions import Approval
    from gpuwatch.domain.launches.money.month_forecast import BudgetUse
    from gpuwatch.domain.market.outbid_risk import OutbidRisk
    from gpuwatch.domain.watches.decide import Match
    from gpuwatch.domain.watches.watch import Watch
    from gpuwatch.settings import Settings
    from gpuwatch.storage.setup.database import Database

_WINDOW = timedelta(days=RANK_DAYS)


class QuoteRank(msgspec.Struct, frozen=True, kw_only=True):
    """Where the quoted price stands, as on the market's page: among the lowest prices of each hour of 30 days.

    Attributes:
        past: of its GPU and rental type, at all providers.
        spread: that of `past`.
        now: the quoted price without the watch's own disk, commission included, in micro-dollars per GPU-hour.
    """

    past: GpuRank
    spread: PriceRange
    now: float


class OfferOdds(msgspec.Struct, frozen=True, kw_only=True):
    """How long offers of this GPU at or under the quoted price lasted; `half_gone_s` None: most lasted longer."""

    half_gone_s: float | None
    longest_s: float
    samples: int


class ApprovalDetails(msgspec.Struct, frozen=True, kw_only=True):
    """An approval, and the figures of the decision. None: unknown.

    Attributes:
        watch: the watch that asks, with the limit in force; None: it is gone.
        most_microusd: the most that the launch can cost in all; None: it would have no latest end.
        runtime_s: after which it ends.
        left: the budget of the day or month with the least money left.
        used_before: how many launches were on this machine.
        risk: of being outbid, before it is answered; None: nobody bids for this offer.
    """

    approval: Approval
    state: ApprovalState
    watch: Watch | None
    most_microusd: int | None
    runtime_s: float | None
    left: BudgetUse | None
    rank: QuoteRank | None
    used_before: int
    risk: OutbidRisk | None

    @property
    def distance(self) -> float | None:
        """0.06: 6 % above the limit; None: the watch is gone, or has no limit for a GPU-hour."""
        limit = None if self.watch is None else self.watch.max_price_usd_gpu_hour
        if self.watch is None or self.watch.unlimited or self.watch.max_job_cost_usd is not None or not limit:
            return None
        return self.approval.match.price_microusd_gpu_hour / MICRO / float(limit) - 1

    @property
    def limit_microusd_gpu_hour(self) -> int | None:
        """The limit that the price is compared with."""
        return None if self.distance is None or self.watch is None else round(self.watch.max_price_usd_gpu_hour * MICRO)


def approval_details(settings: Settings, approvals: Sequence[Approval], now: datetime) -> list[ApprovalDetails]:
    """The figures of some approvals, in their order. Sends no request. Raises StoreError."""
    if not approvals:
        return []
    with open_store_read_only(settings) as store:
        watches = _watches(settings, store, approvals)
        left = _least_left(spending_now(settings, now).budgets)
        return [
            _details(
                store, one, one.own_watch or watches.get(one.watch), left, quote_rank(settings, one.match, now), now
            )
            for one in approvals
        ]


def _watches(settings: Settings, store: Database, approvals: Iterable[Approval]) -> Mapping[str, Watch]:
    known = watches_that_rent(settings, store)
    asking = [known[name] for name in dict.fromkeys(one.watch for one in approvals) if name in known]
    return {watch.name: watch for watch in current_limits(settings, asking, keep=False, from_daemon=True).watches}


def _details(
    store: Database,
    approval: Approval,
    watch: Watch | None,
    left: Mapping[str | None, BudgetUse],
    rank: QuoteRank | None,
    now: datetime,
) -> ApprovalDetails:
    offer = approval.match.offer
    launch = None if watch is None else quoted_launch(approval.match, watch_bound_to_quote(approval, watch), now)
    of_both = [left[name] for name in (None, approval.watch) if name in left]
    return ApprovalDetails(
        approval=approval,
        state=approval.state_at(now),
        watch=watch,
        most_microusd=None if launch is None else most_cost_microusd(launch, now),
        runtime_s=None if launch is None else launch.max_runtime_s,
        left=min(of_both, key=left_microusd, default=None),
        rank=rank,
        used_before=SqlLaunchTotals(store).count_on_machine(offer.provider, offer.machine_id),
        risk=risk_of(store, approval.match, watch, now) if approval.state_at(now) is ApprovalState.OPEN else None,
    )


def _least_left(budgets: Iterable[BudgetUse]) -> dict[str | None, BudgetUse]:
    """The limit of a day or month with the least money left, by watch."""
    found: dict[str | None, BudgetUse] = {}
    for use in budgets:
        if use.limit_name != "max_usd_hour":
            found[use.watch] = min(found.get(use.watch, use), use, key=left_microusd)
    return found


def left_microusd(use: BudgetUse) -> int:
    """What of a limit is not spent yet."""
    return max(0, use.limit - use.used)


def quote_rank(settings: Settings, quote: Match, now: datetime) -> QuoteRank | None:
    """The rank of a quote's price; None: too little is recorded. Raises StoreError."""
    offer = quote.offer
    past = market_ranks(settings, MarketFilter(gpus=(offer.gpu,), spot=offer.spot), now).get(offer.gpu)
    if past is None or past.spread is None:
        return None
    now_microusd = rank_price(offer, REFERENCE_DISK_GB, quote.price.commission_rate)
    return QuoteRank(past=past, spread=past.spread, now=now_microusd)


def offer_odds(settings: Settings, quote: Match, now: datetime) -> OfferOdds | None:
    """How long offers at the quoted price lasted in 30 days; None: too few are recorded. Loads numpy."""
    from gpuwatch.app.market.market import MarketRequest, market_overview  # noqa: PLC0415 12 MB

    request = MarketRequest(
        gpus=(quote.offer.gpu,),
        scope=MarketFilter(spot=quote.offer.spot),
        since=now - _WINDOW,
        until=now,
        data=None,
        under_usd=quote.price_microusd_gpu_hour / MICRO,
    )
    try:
        rows = market_overview(settings, request).rows
    except (UsageError, StoreNotReady):
        return None
    row = next((row for row in rows if row.gpu == quote.offer.gpu and row.is_lifetime_known), None)
    if row is None:
        return None
    life = row.lifetime
    return OfferOdds(half_gone_s=life.median_s, longest_s=life.longest_s, samples=life.samples)


class ApprovalDetailsView(ApprovalView, frozen=True, kw_only=True):
    """One approval of `gpuwatch approvals list`. The last fields: of an open one; null: unknown or answered."""

    most_usd: Annotated[float | None, Meta(description="The most it can cost in all; null: it has no latest end.")]
    max_runtime_s: float | None
    limit_usd_gpu_hour: float | None
    above_limit: Annotated[float | None, Meta(description="0.06: 6 % above the limit.")]
    budget_left_usd: Annotated[float | None, Meta(description="Of the day's or month's budget with the least left.")]
    price_rank: Annotated[
        float | None,
        Meta(description="0.06: 6 % of the hourly lowest prices of 30 days at all providers were lower."),
    ]
    outbid_risk: Annotated[OutbidRiskView | None, Meta(description="null: also if nobody bids for this offer.")]
    launches_on_machine: Annotated[int | None, Meta(description="How many ran on this machine before.")]


def approval_detail_views(
    settings: Settings, approvals: Sequence[Approval], now: datetime
) -> list[ApprovalDetailsView]:
    """Approvals as other programs see them; the figures of the open ones. Raises StoreError."""
    waiting = [one for one in approvals if one.state_at(now) is ApprovalState.OPEN]
    known = {one.approval.approval_id: one for one in approval_details(settings, waiting, now)}
    return [_detail_view(one, known.get(one.approval_id), now) for one in approvals]


def _detail_view(approval: Approval, details: ApprovalDetails | None, now: datetime) -> ApprovalDetailsView:
    limit = None if details is None else details.limit_microusd_gpu_hour
    distance = None if details is None else details.distance
    left = None if details is None or details.left is None else left_microusd(details.left)
    rank = None if details is None else details.rank
    return ApprovalDetailsView.of(
        approval_view(approval, now),
        most_usd=usd_number(None if details is None else details.most_microusd),
        max_runtime_s=None if details is None else details.runtime_s,
        limit_usd_gpu_hour=usd_number(limit),
        above_limit=None if distance is None else round(distance, 6),
        budget_left_usd=usd_number(left),
        price_rank=None if rank is None else rank.past.share_below(rank.now),
        outbid_risk=None if details is None else risk_view(details.risk),
        launches_on_machine=None if details is None else details.used_before,
    )
