"""TensorDock's search side: one catalogue of all places serves every query."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from gpuwatch.ports import Answer, ProviderSettings, Query
from gpuwatch.ports.declarations import Tools
from gpuwatch.ports.settings import Option
from gpuwatch.providers.tensordock.error_mapping import NAME, accepted, ordering, reading
from gpuwatch.providers.tensordock.offers import Recipe, parse_hostnodes, parse_locations
from gpuwatch.providers.toolkit.api_client import ApiClient, TtlCache
from gpuwatch.providers.toolkit.post_processing import ParseResult, build_answer

_KEPT_S: Final = 5.0  # it can be rented: no older price is shown


def new_client(settings: ProviderSettings, tools: Tools) -> ApiClient:
    """The HTTP client of TensorDock; of 100 requests a minute, reading each machine may take two thirds."""
    return ApiClient(settings, tools, intervals_s={"list": 1.0, "detail": 1.0}, reading=reading, ordering=ordering)


def recipe_of(options: Mapping[str, Option]) -> Recipe:
    """The vCPUs and memory that the settings ask for with each GPU."""
    vcpu, ram = options.get("vcpu_per_gpu"), options.get("ram_gb_per_gpu")
    plain = Recipe()
    return Recipe(
        vcpu_per_gpu=vcpu if isinstance(vcpu, float | int) else plain.vcpu_per_gpu,
        ram_gb_per_gpu=ram if isinstance(ram, float | int) else plain.ram_gb_per_gpu,
    )


class TensorDockMarket:
    """Locations, which need no key, or with `source = "hostnodes"` single hosts."""

    name = NAME

    def __init__(self, rest: ApiClient, options: Mapping[str, Option]) -> None:
        self._rest = rest
        self._recipe = recipe_of(options)
        self._hosts = options.get("source") == "hostnodes"
        self._kept = TtlCache[tuple[Any, datetime]](_KEPT_S, rest.tools.monotonic)

    def search(self, query: Query) -> Answer:
        """All offers that match. TensorDock takes no bids, so a query for spot costs no request.

        Raises:
            ProviderError: no usable answer.
        """
        tools, began_s = self._rest.tools, self._rest.tools.monotonic()
        if query.spot:
            return build_answer(ParseResult(searches=0), query, NAME, observed_at=tools.now(), elapsed_s=0.0)
        value, observed_at = self._kept.get(self._ask)
        parse = parse_hostnodes if self._hosts else parse_locations
        seen = parse(value, self._recipe, observed_at)
        return build_answer(seen, query, NAME, observed_at=observed_at, elapsed_s=tools.monotonic() - began_s)

    def _ask(self) -> tuple[Any, datetime]:
        if self._hosts:
            self._rest.require_key()
        reply = self._rest.ask("GET", f"/api/v2/{'hostnodes' if self._hosts else 'locations'}")
        now = self._rest.tools.now()
        return accepted(reply, now), now
