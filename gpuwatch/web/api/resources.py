"""GET: the readable resources, each with its parameters and the view of its items.

A list comes in pages of items, with an ETag.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gpuwatch import providers
from gpuwatch.app.alerts.alerts import EventView, event_filter, event_view, stored_events
from gpuwatch.app.history.period_view import GpuPeriodView, period_fields
from gpuwatch.app.jobs.job_series import listed_series
from gpuwatch.app.jobs.jobs import listed_jobs
from gpuwatch.app.launches.approval_details import ApprovalDetailsView, approval_detail_views
from gpuwatch.app.launches.approvals import recent_approvals
from gpuwatch.app.launches.cost_views import CostLineView, cost_report_view
from gpuwatch.app.launches.costs import cost_report, month_start
from gpuwatch.app.launches.launches import ListedLaunchView, launch_views
from gpuwatch.app.market.current_offers import current_offers
from gpuwatch.app.market.gpu_status_view import GpuStatusView
from gpuwatch.app.market.offers import OfferView, listed_views
from gpuwatch.app.market.provider_status import ProviderStatusView, provider_status_view, provider_statuses
from gpuwatch.app.reader_text import use_clock
from gpuwatch.app.watches.watch_selection import in_group, watch_named
from gpuwatch.app.watches.watch_status import WatchStatusView, watch_status_view, watch_statuses
from gpuwatch.app.watches.why.past_decisions import PastWhyView, past_span, past_why_view, why_at
from gpuwatch.app.watches.why.watch_details import (
    DAYS,
    MAX_DAYS,
    WatchDetailsView,
    watch_details,
    watch_details_view,
)
from gpuwatch.bootstrap import real_now, share_open_stores
from gpuwatch.domain.jobs.job import JobView, job_view
from gpuwatch.domain.jobs.job_series import SeriesView, series_view
from gpuwatch.domain.market.json_view import JsonView
from gpuwatch.domain.setup.durations import DURATION_PATTERN, MAX_S, parse_duration
from gpuwatch.engine.market.browse import offer_filter, sorted_offers
from gpuwatch.errors import ResourceNotFound, UsageError
from gpuwatch.ports import AlertKind
from gpuwatch.settings import Settings
from gpuwatch.web.problems import HttpProblem, validation_text

if TYPE_CHECKING:
    from gpuwatch.web.context import WebContext

Query = TypeVar("Query", bound=msgspec.Struct)
PREFIX = "/api/v1"
DEFAULT_LIMIT, MAX_LIMIT = 500, 1000
_IN_QUERY = frozenset({"token", "access_token", "api_key", "authorization", "password", "code"})
_SPOTS = {"no": False, "only": True, "any": None}
_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
_MOMENT = (
    r"^([0-9]{4}-[0-9]{2}-[0-9]{2}[T ])?([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?"
    r"(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])?$"
)
_Span = Annotated[str, msgspec.Meta(pattern=DURATION_PATTERN, max_length=60, examples=["24h", "7d"])]


class ListParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Parameters of every list."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_LIMIT, description="Maximum number of items.")] = DEFAULT_LIMIT
    offset: Annotated[int, msgspec.Meta(ge=0, le=10**9, description="Items to skip; see `next`.")] = 0


class OfferParameters(ListParameters, frozen=True, kw_only=True):
    """Parameters of offers."""

    gpu: _Text | None = None
    provider: _Text | None = None
    count: Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,3}(-[0-9]{1,3})?$")] | None = None
    spot: Literal["no", "only", "any"] = "any"
    max_price: Annotated[float, msgspec.Meta(gt=0, le=1_000_000)] | None = None
    verified: bool = False


class AlertParameters(ListParameters, frozen=True, kw_only=True):
    """Parameters of events."""

    since: _Span = "7d"
    kind: AlertKind | None = None
    severity: Literal["info", "warning", "critical"] = "info"


class CostParameters(ListParameters, frozen=True, kw_only=True):
    """Parameters of costs."""

    by: Literal["watch", "provider", "gpu", "day", "launch"] = "watch"
    month: Annotated[str, msgspec.Meta(pattern=r"^(19[7-9]|20[0-9])[0-9]-(0[1-9]|1[0-2])$")] | None = None


class HistoryParameters(ListParameters, frozen=True, kw_only=True):
    """Parameters of prices."""

    gpu: _Text | None = None
    since: _Span = "7d"
    every: Literal["1h", "1d", "1w"] = "1h"
    spot: Literal["no", "only", "any"] = "no"
    verified: bool = False


class MarketParameters(ListParameters, frozen=True, kw_only=True):
    """Parameters of the market."""

    since: _Span = "30d"
    spot: Literal["no", "only", "any"] = "no"
    verified: bool = False


class GroupParameters(ListParameters, frozen=True, kw_only=True):
    """Parameters of watches."""

    group: Annotated[str, msgspec.Meta(min_length=1, max_length=100, description="Only its watches.")] | None = None


class WatchParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Parameters of one watch."""

    days: Annotated[int, msgspec.Meta(ge=1, le=MAX_DAYS, description="Days of its past.")] = DAYS


class WhyParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Parameters of a moment of the past."""

    at: Annotated[
        str,
        msgspec.Meta(
            pattern=_MOMENT,
            max_length=40,
            description="A time of day, the last one that is over, or a day with a time; in the configured zone.",
            examples=["03:12", "2026-11-28T03:12:00+01:00"],
        ),
    ]


class ResourceAnswer(msgspec.Struct, frozen=True):
    """All items, what is shown of one (only those of the page are made), and further members of the JSON."""

    items: Sequence[Any]
    view: Callable[[Any], JsonView] = lambda view: view
    extra: Mapping[str, Any] = {}


class Resource(msgspec.Struct, frozen=True, kw_only=True):
    """One list. `item`: what each item is, in the document, too."""

    name: str
    summary: str
    parameters: type[ListParameters]
    read: Callable[[Settings, Any], ResourceAnswer]
    item: type[JsonView]


class ItemResource(msgspec.Struct, frozen=True, kw_only=True):
    """One thing by its name, with more than its list says. `item`: what it is, in the document, too."""

    path: str
    summary: str
    parameters: type[msgspec.Struct]
    read: Callable[[Settings, str, Any], JsonView]
    item: type[JsonView]


def _offers(settings: Settings, query: OfferParameters) -> ResourceAnswer:
    filter_ = offer_filter(
        [query.gpu] if query.gpu else [],
        count=query.count,
        max_price=None if query.max_price is None else repr(query.max_price),
        spot=query.spot,
        verified=query.verified,
    )
    if query.provider is not None and query.provider not in providers.names():  # never an empty list
        raise ResourceNotFound(f"there is no provider {query.provider!r}; providers: {', '.join(providers.names())}")
    current = current_offers(settings, filter_, [query.provider] if query.provider else [])
    offers = sorted_offers(current.matches, "gpu-price")
    shown = offers[query.offset : query.offset + query.limit]
    views = dict(zip(map(id, shown), listed_views(settings, shown), strict=True))
    return ResourceAnswer(offers, lambda one: views[id(one)])


def _market(settings: Settings, query: MarketParameters) -> ResourceAnswer:
    from gpuwatch.app.market.market import (  # noqa: PLC0415 it loads numpy: 12 MB
        MarketRequest,
        market_overview,
        market_view,
    )
    from gpuwatch.domain.history.market_history import MarketFilter  # noqa: PLC0415

    now = real_now()
    since = now - timedelta(seconds=seconds_of(query.since))
    scope = MarketFilter(spot=_SPOTS[query.spot], verified=query.verified)
    request = MarketRequest(gpus=(), scope=scope, since=since, until=now, data=None, under_usd=None)
    return ResourceAnswer(market_view(market_overview(settings, request), request).gpus)


def _watches(settings: Settings, query: GroupParameters) -> ResourceAnswer:
    return ResourceAnswer(watch_statuses(settings, in_group(settings, query.group)), watch_status_view)


def _watch(settings: Settings, name: str, query: WatchParameters) -> JsonView:
    details = watch_details(settings, watch_named(settings, name), query.days, real_now())
    return watch_details_view(details)


def _why(settings: Settings, name: str, query: WhyParameters) -> JsonView:
    now = real_now()
    watch = watch_named(settings, name)
    try:
        span = past_span(query.at, now, settings.timezone)
    except UsageError as error:
        raise HttpProblem(404, str(error)) from None  # as the document allows it, but it is not over, or no date
    with use_clock(settings.timezone, now):
        return past_why_view(why_at(settings, watch, *span))


def _launches(settings: Settings, _query: ListParameters) -> ResourceAnswer:
    return ResourceAnswer(launch_views(settings, real_now()))


def _jobs(settings: Settings, _query: ListParameters) -> ResourceAnswer:
    return ResourceAnswer(listed_jobs(settings, all_jobs=True)[::-1], job_view)


def _series(settings: Settings, _query: ListParameters) -> ResourceAnswer:
    return ResourceAnswer(listed_series(settings), series_view)


def _approvals(settings: Settings, _query: ListParameters) -> ResourceAnswer:
    return ResourceAnswer(approval_detail_views(settings, recent_approvals(settings), real_now()))


def _alerts(settings: Settings, query: AlertParameters) -> ResourceAnswer:
    filter_ = event_filter(seconds_of(query.since), [query.kind] if query.kind else (), query.severity)
    return ResourceAnswer(stored_events(settings, filter_), event_view)


def _providers(settings: Settings, _query: ListParameters) -> ResourceAnswer:
    return ResourceAnswer(provider_statuses(settings), provider_status_view)


def _costs(settings: Settings, query: CostParameters) -> ResourceAnswer:
    month = None if query.month is None else month_start(query.month)
    report = cost_report_view(cost_report(settings, query.by, month), query.by)
    rest = {name: value for name, value in msgspec.structs.asdict(report).items() if name != "lines"}
    return ResourceAnswer(report.lines, extra=rest)


def _history(settings: Settings, query: HistoryParameters) -> ResourceAnswer:
    """Return the prices of one GPU; without one, of all watched or recorded GPUs."""
    from gpuwatch.app.history.price_history import (  # noqa: PLC0415 it loads numpy: 12 MB
        PriceHistoryRequest,
        price_history,
    )
    from gpuwatch.domain.history.market_history import MarketFilter  # noqa: PLC0415

    now = real_now()
    since = now - timedelta(seconds=seconds_of(query.since))
    scope = MarketFilter(spot=_SPOTS[query.spot], verified=query.verified)
    items: list[GpuPeriodView] = []
    kept = [*(gpu for watch in settings.watches for gpu in watch.gpu), *settings.record.gpu_names]
    for gpu in [query.gpu] if query.gpu else dict.fromkeys(kept):
        request = PriceHistoryRequest(
            gpu=gpu, scope=scope, since=since, until=now, data=None, every=query.every,
            is_for_programs=True, zone=ZoneInfo(settings.timezone), under_usd=(),
        )  # fmt: skip
        points = price_history(settings, request).track.points
        items += [GpuPeriodView.of(point, gpu=gpu, **period_fields(point)) for point in points]
    return ResourceAnswer(items)


def seconds_of(text: str) -> float:
    """Parse a duration that matches the pattern; one that is too long becomes the longest."""
    try:
        return parse_duration(text)
    except ValueError:
        return MAX_S


RESOURCES = (
    Resource(name="offers", summary="Offers on sale, from the store; cheapest GPU first.",
             parameters=OfferParameters, read=_offers, item=OfferView),
    Resource(name="market", summary="Each GPU: price now, changes, rank among its prices, lifetimes of offers.",
             parameters=MarketParameters, read=_market, item=GpuStatusView),
    Resource(name="watches", summary="Watches: state, best offer, distance to the limit.",
             parameters=GroupParameters, read=_watches, item=WatchStatusView),
    Resource(name="launches", summary="Launches, newest first.",
             parameters=ListParameters, read=_launches, item=ListedLaunchView),
    Resource(name="approvals", summary="Quotes that await a decision, and those of the last week.",
             parameters=ListParameters, read=_approvals, item=ApprovalDetailsView),
    Resource(name="alerts", summary="Events, newest last.", parameters=AlertParameters, read=_alerts, item=EventView),
    Resource(name="providers", summary="Providers: status, health, quota.",
             parameters=ListParameters, read=_providers, item=ProviderStatusView),
    Resource(name="costs", summary="Spending of a month.", parameters=CostParameters, read=_costs, item=CostLineView),
    Resource(name="history", summary="Prices over time.",
             parameters=HistoryParameters, read=_history, item=GpuPeriodView),
    Resource(name="jobs", summary="Jobs, newest first: state, progress, cost.",
             parameters=ListParameters, read=_jobs, item=JobView),
    Resource(name="series", summary="Recurring jobs: schedule, next run, missed and skipped times.",
             parameters=ListParameters, read=_series, item=SeriesView),
)  # fmt: skip

ITEMS = (
    ItemResource(path="/watches/{name}", summary="All about a watch: each rule with its figures, its past by the hour.",
                 parameters=WatchParameters, read=_watch, item=WatchDetailsView),
    ItemResource(path="/watches/{name}/why", summary="Why a watch did or did not act at a time of the past.",
                 parameters=WhyParameters, read=_why, item=PastWhyView),
)  # fmt: skip


# --- routes -----------------------------------------------------------------------------------------------------------


def reading_routes(context: WebContext) -> list[Route]:
    """Return one route for each resource, and for what has a name."""
    lists = [(f"{PREFIX}/{one.name}", one.parameters, _list_reader(one)) for one in RESOURCES]
    items = [(PREFIX + one.path, one.parameters, _item_reader(one)) for one in ITEMS]
    return [Route(path, _reads(context, kind, read), methods=["GET"]) for path, kind, read in [*lists, *items]]


_Reader = Callable[[Settings, Mapping[str, str], Any], bytes]


def _list_reader(resource: Resource) -> _Reader:
    return lambda settings, _path, query: page_json(settings, resource, query)


def _item_reader(item: ItemResource) -> _Reader:
    return lambda settings, path, query: msgspec.json.encode(item.read(settings, path["name"], query))


def _reads(context: WebContext, kind: type[msgspec.Struct], read: _Reader) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        query = parameters(request, kind)
        return with_etag(request, await run_in_threadpool(body, request.path_params, query))

    def body(path: Mapping[str, str], query: msgspec.Struct) -> bytes:
        with share_open_stores(context.owner.stores):
            return read(context.settings, path, query)

    return answer


def parameters(request: Request, kind: type[Query]) -> Query:
    """Decode the query by its type. Raises HttpProblem: 400 (it contains a secret), 422."""
    pairs = request.query_params.multi_items()
    if any(name.lower() in _IN_QUERY for name, _ in pairs):
        raise HttpProblem(400, "do not send a secret in the URL: use Authorization: Bearer TOKEN")
    values = dict(pairs)
    if len(values) < len(pairs):
        raise HttpProblem(422, "expected each parameter only once")
    if any(value.lower() == "null" for value in values.values()):  # the decoder would treat it as a missing value
        raise HttpProblem(422, "expected a value; omit the parameter for none")
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise HttpProblem(422, validation_text(error)) from None


def page_json(settings: Settings, resource: Resource, query: ListParameters) -> bytes:
    """The JSON of one page of a list. Raises HttpProblem: 404."""
    try:
        answer = resource.read(settings, query)
    except UsageError as error:  # each value is valid by the document: there is no such GPU or provider
        raise HttpProblem(404, str(error).removeprefix("--")) from None  # parameters have no dashes
    end = query.offset + query.limit
    items = [answer.view(item) for item in answer.items[query.offset : end]]
    following = _next_page(resource, query, end) if end < len(answer.items) else None
    return msgspec.json.encode({"items": items, "next": following, **answer.extra})


def _next_page(resource: Resource, query: ListParameters, offset: int) -> str:
    """Return the address of the next page."""
    defaults = resource.parameters()
    values: Mapping[str, Any] = msgspec.structs.asdict(msgspec.structs.replace(query, offset=offset))
    changed = {name: value for name, value in values.items() if value != getattr(defaults, name)}
    return f"{PREFIX}/{resource.name}?{urlencode(changed)}"


def with_etag(request: Request, body: bytes) -> Response:
    """Return the JSON, or 304 if the client already has it."""
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    client_tags = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
    if tag in client_tags or "*" in client_tags:
        return Response(status_code=304, headers={"ETag": tag})
    return Response(body, media_type="application/json", headers={"ETag": tag})
