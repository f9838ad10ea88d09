"""The offer that a watch found as a task of an orchestrator, which rents it; gpuwatch does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from gpuwatch.app.market.offers import match_view
from gpuwatch.app.watches.check import check_markets
from gpuwatch.app.watches.current_limits import current_limits
from gpuwatch.app.watches.watch_selection import watch_named
from gpuwatch.domain.market.offer import OfferKind
from gpuwatch.domain.watches.choice import best_first
from gpuwatch.domain.watches.orchestrator_task import is_supported, orchestrator_task_of
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.domain.watches.decide import Match
    from gpuwatch.settings import Settings


class Handover(msgspec.Struct, frozen=True, kw_only=True):
    """A task for an orchestrator. `task` None: nothing matched; `complete`: every provider answered."""

    tool: str
    match: Any  # a `Match`, or None
    task: Mapping[str, Any] | None
    skipped: tuple[str, ...]  # providers with a match where the orchestrator cannot run it
    complete: bool


def handover(settings: Settings, name: str, tool: str, command: str, provider_names: Sequence[str] = ()) -> Handover:
    """Poll once for a watch, and convert its best offer to a task. Rents and stores nothing.

    Args:
        command: the command to run on the machine.
        provider_names: providers to poll; empty: the watch's own.

    Raises:
        UsageError: there is no such watch, or it has no hourly price limit.
    """
    watch = watch_named(settings, name)
    if watch.max_job_cost_usd is not None:
        raise UsageError(f"watch {name!r} compares job costs: an hourly price cap requires max_price")
    [limited] = current_limits(settings, [watch], keep=False).watches
    checked = check_markets(settings, [limited], provider_names)
    return select_handover(
        tool,
        best_first(limited, checked.matches[name]),
        lambda match: orchestrator_task_of(tool, limited, match, command),
        complete=checked.is_complete,
    )


def select_handover(
    tool: str, matches: Sequence[Match], write: Callable[[Match], Mapping[str, Any]], *, complete: bool, nodes: int = 1
) -> Handover:
    """The first live offer at a provider where the tool runs so many machines, as a task. Pure."""
    live = [match for match in matches if match.offer.kind is OfferKind.LIVE]
    supported = [match for match in live if is_supported(tool, match.offer.provider, nodes)]
    best = supported[0] if supported else None
    return Handover(
        tool=tool,
        match=best,
        task=None if best is None else write(best),
        skipped=tuple(sorted({match.offer.provider for match in live} - {match.offer.provider for match in supported})),
        complete=complete,
    )


def handover_json(handover: Handover) -> dict[str, Any]:
    """JSON of a hand-over."""
    return {
        "tool": handover.tool,
        "matched": handover.task is not None,
        "offer": None if handover.match is None else match_view(handover.match),
        "task": handover.task,
        "skipped_providers": list(handover.skipped),
        "complete": handover.complete,
    }
