"""The polling plan of each provider, from the settings. Sends no request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpuwatch.bootstrap.provider_access import is_polled_for
from gpuwatch.engine.polling_plan import PollingPlan, plan_polling
from gpuwatch.engine.row_budget import SWEEP_EVERY_MIN_S
from gpuwatch.engine.sweep import sweep_targets

if TYPE_CHECKING:
    from gpuwatch.settings import Settings


def polling_plan(settings: Settings, name: str) -> PollingPlan:
    """The plan of one enabled provider, with sweeps as often as they may come."""
    provider = settings.providers[name]
    sweep_every_s = provider.sweep_every_s or max(SWEEP_EVERY_MIN_S, provider.poll_every_s)
    polled = [watch for watch in settings.watches if is_polled_for(name, watch)]
    swept = [watch for watch in settings.watches if watch.providers is None or name in watch.providers]
    targets = sweep_targets(swept, settings.record_gpus)
    return plan_polling(provider, polled, provider.commission, len(targets), sweep_every_s)


def polling_warnings(settings: Settings) -> Iterator[str]:
    """One line for each provider whose watches need more searches than it allows."""
    for name in settings.providers:
        if (warning := polling_plan(settings, name).warning) is not None:
            yield warning
