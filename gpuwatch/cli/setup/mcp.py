"""`gpuwatch mcp`: tools for agents over stdio, by the Model Context Protocol.

Each tool is one use case of `app/`. A fault of the caller or of a marketplace is the tool's answer, in one line.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from zoneinfo import ZoneInfo

import click
from pydantic import Field

from gpuwatch.bootstrap import real_now
from gpuwatch.bootstrap.settings_loading import load_settings
from gpuwatch.cli.base import Command
from gpuwatch.cli.options import config_option
from gpuwatch.domain.history.market_history import MarketFilter
from gpuwatch.errors import GpuwatchError, UsageError
from gpuwatch.installation import install_hint

if TYPE_CHECKING:
    from mcp.server import MCPServer

    from gpuwatch.settings import Settings

T = TypeVar("T", bound=Callable[..., Any])
JsonObject = dict[str, Any]
Text = Annotated[str, Field(max_length=200)]
Gpu = Annotated[str, Field(max_length=60, description='GPU family or model, such as "H100" or "RTX 4090".')]
Days = Annotated[float, Field(gt=0, le=3660)]
Limit = Annotated[int, Field(ge=1, le=200)]
Usd = Annotated[float, Field(gt=0, le=1_000_000, description="USD per GPU-hour, commission included.")]
Verified = Annotated[bool, Field(description="Only hosts that their provider has verified.")]
Why = Annotated[str, Field(max_length=500, description="Why, in a sentence: the owner reads it.")]
_INSTRUCTIONS = (
    "gpuwatch watches GPU marketplaces. Prices are USD, commission included. Reading tools answer from its store."
    " A launch that you request awaits the owner's approval unless it fits [mcp] max_usd_day; never tell the user that"
    " something was rented before `launches` shows it."
)


@click.command(cls=Command, examples=("gpuwatch mcp", "gpuwatch mcp --config gpuwatch.toml"))
@config_option
def mcp(config: str | None) -> None:
    """Serve tools for agents over standard input and output (MCP), until the input ends.

    Agents read offers, prices, advice, watches, launches and costs. What they request awaits your approval, unless it
    fits [mcp] max_usd_day: see docs/mcp.md.
    """
    load_settings(config)  # invalid settings are reported here, not by the first tool
    _server(config).run()


def _server(config: str | None) -> MCPServer[Any]:
    try:
        from mcp.server import MCPServer
    except ImportError as error:
        raise UsageError(f"gpuwatch mcp requires the MCP SDK: {install_hint('mcp')}") from error

    server: MCPServer[Any] = MCPServer("gpuwatch", instructions=_INSTRUCTIONS, log_level="ERROR")
    for tool in (*_reading_tools(config), *_acting_tools(config)):
        server.add_tool(_answering(tool), name=tool.__name__, description=tool.__doc__)
    return server


def _answering(tool: T) -> T:
    """The tool; an error of gpuwatch is its answer, which the agent reads."""
    from mcp.server.mcpserver.exceptions import ToolError

    @wraps(tool)
    def answer(*args: Any, **kwargs: Any) -> Any:
        try:
            return tool(*args, **kwargs)
        except GpuwatchError as error:
            raise ToolError(str(error)) from None

    return answer  # type: ignore[return-value]  # same signature, by wraps


def _span(days: float, *, verified: bool) -> JsonObject:
    now = real_now()
    return {"scope": MarketFilter(verified=verified), "since": now - timedelta(days=days), "until": now, "data": None}


def _reading_tools(config: str | None) -> tuple[Callable[..., JsonObject], ...]:
    def settings() -> Settings:
        return load_settings(config)

    def offers(gpu: Gpu, max_price: Usd | None = None, limit: Limit = 20) -> JsonObject:
        """Offers on sale as last polled, cheapest GPU first. `as_of` says when that was."""
        from gpuwatch.app.market.current_offers import current_offers
        from gpuwatch.app.market.offers import offer_views
        from gpuwatch.domain.market.json_view import rfc3339
        from gpuwatch.engine.market.browse import offer_filter

        asked = offer_filter([gpu], spot="any", max_price=None if max_price is None else repr(max_price))
        current = current_offers(settings(), asked)
        views = offer_views(settings(), current.matches, "gpu-price", limit)
        return {"as_of": rfc3339(current.as_of), "offers": [view.json() for view in views]}

    def market(gpu: Gpu | None = None, days: Days = 30, verified: Verified = False) -> JsonObject:
        """Each GPU in one row: price now, changes, rank in its history, how long offers last."""
        from gpuwatch.app.market.market import MarketRequest, market_overview, market_view

        request = MarketRequest(gpus=() if gpu is None else (gpu,), under_usd=None, **_span(days, verified=verified))
        return market_view(market_overview(settings(), request), request).json()

    def history(gpu: Gpu, days: Days = 30, verified: Verified = False) -> JsonObject:
        """The price of a GPU by the day: lowest, quartiles, how much of the time was polled."""
        from gpuwatch.app.history.price_history import PriceHistoryRequest, price_history, price_history_json

        zone = ZoneInfo(settings().timezone)
        more: JsonObject = {"every": "1d", "is_for_programs": True, "zone": zone, "under_usd": ()}
        request = PriceHistoryRequest(gpu=gpu, **_span(days, verified=verified), **more)
        return _plain(price_history_json(price_history(settings(), request)))

    def advise(
        gpu: Gpu,
        job_hours: Annotated[float, Field(gt=0, le=8760)],
        deadline_hours: Days = 48,
        verified: Verified = False,
    ) -> JsonObject:
        """Wait or buy: the price to hold out for before a deadline, and what waiting saved in the past."""
        from gpuwatch.app.forecasts.advise import AdviceRequest, advice_json, give_advice

        request = AdviceRequest(
            gpu=gpu,
            deadline_s=min(deadline_hours, 720) * 3600,
            job_hours=job_hours,
            under_usd=None,
            poll_every_s=None,
            is_until_now=True,
            **_span(90, verified=verified),
        )
        return _plain(advice_json(request, give_advice(settings(), request)))

    def plan_job(
        size_of: Annotated[str, Field(max_length=60, description='Parameters, such as "8B" or "70B".')],
        method: Annotated[str, Field(max_length=20, description='"full", "lora" or "qlora".')] = "qlora",
        tokens: Annotated[str, Field(max_length=20, description='Training tokens, such as "50M".')] = "10M",
    ) -> JsonObject:
        """What a fine-tuning job needs, and what it costs in all on the offers on sale, cheapest job first."""
        from gpuwatch.app.plan.plan_job import plan_on_offers
        from gpuwatch.app.plan.plan_job_json import offer_plan_json
        from gpuwatch.app.plan.plan_request import job_request

        request = job_request({"model": size_of, "method": method, "tokens": tokens})
        return _plain(offer_plan_json(request, plan_on_offers(settings(), request)))

    def watches() -> JsonObject:
        """Each watch: state, last price, limit, and what blocks it."""
        from gpuwatch.app.watches.watch_status import watch_status_view, watch_statuses

        return {"watches": [watch_status_view(status).json() for status in watch_statuses(settings())]}

    def launches() -> JsonObject:
        """What was rented, newest first, with state and cost."""
        from gpuwatch.app.launches.launches import launch_views

        return {"launches": [view.json() for view in launch_views(settings(), real_now())][:200]}

    def costs() -> JsonObject:
        """This month's spending, the rate now, the forecast and the budgets."""
        from gpuwatch.app.launches.cost_views import cost_report_view
        from gpuwatch.app.launches.costs import cost_report

        return cost_report_view(cost_report(settings(), "watch"), "watch").json()

    return offers, market, history, advise, plan_job, watches, launches, costs


def _acting_tools(config: str | None) -> tuple[Callable[..., JsonObject], ...]:
    def create_watch(name: Text, gpu: Gpu, max_price: Usd, why: Why, asks: bool = False) -> JsonObject:
        """Add a watch that alerts the owner, or with `asks` requests the owner's approval, at or under a price."""
        from gpuwatch.app.watches.agent_watch import create_agent_watch

        return create_agent_watch(config, name, gpu, max_price, why, asks=asks)

    def request_launch(watch: Text, why: Why, offer_id: Text | None = None) -> JsonObject:
        """Ask for the best offer of a watch that asks, or for one of its offers. The owner approves it."""
        from gpuwatch.app.launches.requests.agent_requests import request_launch as request

        return request(load_settings(config), watch, offer_id, why).json()

    def rent(
        offer_id: Text,
        provider: Text,
        hours: Annotated[float, Field(gt=0, le=8760, description="Runtime after which it is destroyed.")],
        why: Why,
        image: Text | None = None,
        spot: bool = False,
    ) -> JsonObject:
        """Ask for one offer without a watch, priced again; the owner approves it. A gone offer names the nearest."""
        from gpuwatch.app.launches.requests.agent_requests import request_rent
        from gpuwatch.app.launches.requests.rent import RentRequest
        from gpuwatch.domain.launches.rent_terms import RentTerms

        terms = RentTerms(max_runtime_s=hours * 3600, image=image or None)
        request = RentRequest(provider=provider, offer_id=offer_id, terms=terms, spot=spot)
        return request_rent(load_settings(config), request, why).json()

    def stop(launch_id: Text, why: Why) -> JsonObject:
        """End a launch that an agent approved; of any other one, ask the owner to end it."""
        from gpuwatch.app.launches.requests.agent_requests import request_end

        return request_end(load_settings(config), launch_id, why).json()

    return create_watch, request_launch, rent, stop


def _plain(value: JsonObject) -> JsonObject:
    """Views and enums as plain JSON."""
    import msgspec

    plain: JsonObject = msgspec.json.decode(msgspec.json.encode(value, enc_hook=_encoded))
    return plain


def _encoded(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else str(value)
