"""The offer that a watch found, written as a task of an orchestrator: SkyPilot or dstack rents it, gpuwatch does not.

source: SkyPilot 0.14.1 (`sky/utils/schemas.py`, names of clouds) and dstack 0.22.5 (`TaskConfiguration`,
`ProfileParams`, `BackendType`), read 2026-11. Which region and machine type both sides spell alike is in
`orchestrators.csv`; where they do not, neither is written, and the price cap decides.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import ROUND_DOWN, Decimal
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gpuwatch.app.check import check_markets, limits_in_force
from gpuwatch.app.offers import match_json
from gpuwatch.app.watch_selection import watch_named
from gpuwatch.domain.market.offer import OfferKind
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.domain.watches.decide import Match
    from gpuwatch.domain.watches.watch import Watch
    from gpuwatch.settings import Settings

TOOLS: Final = ("skypilot", "dstack")
_CENT: Final = Decimal("0.0001")
_LEAST_MEMORY: Final = 0.9  # of the card's, as two lists of one card may state it
_NAME: Final = re.compile(r"[^a-z0-9]+")
_FORMS: Final = re.compile(r"\s*\b(SXM\d?|PCIe|NVL|\d+GB)\b")


class Handover(msgspec.Struct, frozen=True, kw_only=True):
    """A task for an orchestrator. `task` None: nothing matched; `complete`: every provider answered."""

    tool: str
    match: Any  # a `Match`, or None
    task: Mapping[str, Any] | None
    skipped: tuple[str, ...]  # providers with a match that the orchestrator does not know
    complete: bool


def handover(settings: Settings, name: str, tool: str, command: str, only: Sequence[str] = ()) -> Handover:
    """Poll once for a watch, and write its cheapest offer as a task. Rents and stores nothing.

    Args:
        command: what runs on the machine.
        only: providers to ask; empty: the watch's own.

    Raises:
        UsageError: there is no such watch, or no limit in money an hour.
    """
    watch = watch_named(settings, name)
    if watch.max_job_cost_usd is not None:
        raise UsageError(f"watch {name!r} compares costs of a job: a price cap an hour needs max_price")
    [limited] = limits_in_force(settings, [watch], keep=False).watches
    found = check_markets(settings, [limited], only)
    return chosen(
        tool, found.matches[name], lambda match: task_of(tool, limited, match, command), complete=found.is_complete
    )


def chosen(
    tool: str, matches: Sequence[Match], write: Callable[[Match], Mapping[str, Any]], *, complete: bool
) -> Handover:
    """The first live offer at a provider that the tool knows, as a task. Pure."""
    live = [match for match in matches if match.offer.kind is OfferKind.LIVE]
    known = [match for match in live if _names_at(match.offer.provider).get(tool)]
    best = known[0] if known else None
    return Handover(
        tool=tool,
        match=best,
        task=None if best is None else write(best),
        skipped=tuple(sorted({match.offer.provider for match in live} - {match.offer.provider for match in known})),
        complete=complete,
    )


def task_of(tool: str, watch: Watch, match: Match, command: str) -> dict[str, Any]:
    """The task: cloud, region and type as the orchestrator spells them, and never more than the watch's limit. Pure."""
    return (_skypilot if tool == "skypilot" else _dstack)(watch, match, command)


def as_yaml(task: Mapping[str, Any]) -> str:
    """The task as YAML: plain keys, texts in double quotes."""
    return "\n".join(_lines(task, 0)) + "\n"


def handover_json(found: Handover) -> dict[str, Any]:
    """JSON of a hand-over."""
    return {
        "tool": found.tool,
        "matched": found.task is not None,
        "offer": None if found.match is None else match_json(found.match),
        "task": found.task,
        "skipped_providers": list(found.skipped),
        "complete": found.complete,
    }


def _skypilot(watch: Watch, match: Match, command: str) -> dict[str, Any]:
    offer, names = match.offer, _names_at(match.offer.provider)
    by_type = names["skypilot_type"] and offer.terms.instance_type
    place = f"/{offer.region}" if names["skypilot_region"] and offer.region else ""
    resources: dict[str, Any] = {
        "infra": f"{names['skypilot']}{place}",
        **({"instance_type": offer.terms.instance_type} if by_type else {"accelerators": _accelerators(match)}),
        "use_spot": offer.spot,
        "max_hourly_cost": _cap(watch, match),
    }
    if watch.disk_gb:
        resources["disk_size"] = math.ceil(watch.disk_gb)
    return {"name": _name(watch), "resources": resources, "run": command}


def _dstack(watch: Watch, match: Match, command: str) -> dict[str, Any]:
    offer, names = match.offer, _names_at(match.offer.provider)
    gpu: dict[str, Any] = {"name": [_model(match)], "count": offer.gpu_count}
    if offer.gpu_memory_gib:
        gpu["memory"] = f"{math.floor(offer.gpu_memory_gib * _LEAST_MEMORY)}GB.."  # never the smaller card of a name
    resources: dict[str, Any] = {"gpu": gpu}
    if watch.disk_gb:
        resources["disk"] = f"{math.ceil(watch.disk_gb)}GB.."
    task: dict[str, Any] = {
        "type": "task",
        "name": _name(watch),
        "commands": [command],
        "resources": resources,
        "backends": [names["dstack"]],
    }
    if names["dstack_region"] and offer.region:
        task["regions"] = [offer.region]
    if names["dstack_type"] and offer.terms.instance_type:
        task["instance_types"] = [offer.terms.instance_type]
    return task | {"spot_policy": "spot" if offer.spot else "on-demand", "max_price": _cap(watch, match)}


def _cap(watch: Watch, match: Match) -> float:
    """The watch's limit for the whole machine, USD an hour, rounded down. Neither tool adds a commission."""
    return float((watch.max_price_usd_gpu_hour * match.offer.gpu_count).quantize(_CENT, ROUND_DOWN))


def _accelerators(match: Match) -> str:
    """`H100:8`, `A100-80GB:1`, `RTX4090:2`: SkyPilot's spelling, without the form factor."""
    memory = match.offer.gpu_memory_gib or 0.0
    return f"{_model(match)}{'-80GB' if _model(match) == 'A100' and memory > 60 else ''}:{match.offer.gpu_count}"


def _model(match: Match) -> str:
    """The model without its form factor, memory and blanks. Both tools refuse a name that they do not know."""
    return _FORMS.sub("", match.offer.gpu).replace(" ", "")


def _name(watch: Watch) -> str:
    """One name a watch: a second hand-over meets the first one's machine instead of renting another."""
    return f"gpuwatch-{_NAME.sub('-', watch.name.lower()).strip('-') or 'watch'}"[:40].rstrip("-")


@cache
def _table() -> Mapping[str, Mapping[str, str]]:
    text = (files("gpuwatch.app") / "orchestrators.csv").read_text("utf-8")
    return {row["provider"]: row for row in csv.DictReader(text.splitlines())}


def _names_at(provider: str) -> Mapping[str, str]:
    return _table().get(provider, {})


def _lines(task: Mapping[str, Any], depth: int) -> list[str]:
    found, indent = [], "  " * depth
    for key, value in task.items():
        if isinstance(value, Mapping):
            found += [f"{indent}{key}:", *_lines(value, depth + 1)]
        else:
            found.append(f"{indent}{key}: {json.dumps(value, ensure_ascii=False)}")
    return found
