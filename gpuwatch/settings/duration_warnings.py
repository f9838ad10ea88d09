"""Warnings about durations that are too short for two observations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpuwatch.domain.launches.instance import CHANGING_EVERY_S, RUNNING_EVERY_S
from gpuwatch.domain.setup.durations import format_duration
from gpuwatch.domain.watches.watch import SpotPolicy, Watch
from gpuwatch.settings.model import Settings

_MIN_OBSERVATIONS = 2  # the first shows a state, the second that it persists


def duration_warnings(settings: Settings) -> Iterator[str]:
    """One line per warning: the key, how often it is observed, and the minimum."""
    rounds_s = {name: _round_s(settings, name) for name in settings.providers}
    for watch in settings.watches:
        for key, span_s, every_s, what in (*_polled_durations(rounds_s, watch), *_listed_durations(watch)):
            if span_s is not None and 0 < span_s < _MIN_OBSERVATIONS * every_s:
                yield (
                    f'watch "{watch.name}": {key} = {format_duration(span_s)} is shorter than two observations: '
                    f"{what} every {format_duration(every_s)}; set at least "
                    f"{format_duration(_MIN_OBSERVATIONS * every_s)}"
                )


def _polled_durations(rounds_s: Mapping[str, float], watch: Watch) -> Iterator[tuple[str, float, float, str]]:
    """Durations that depend on the poll interval, for the fastest of the watch's providers."""
    intervals_s = [round_s for name, round_s in rounds_s.items() if watch.providers is None or name in watch.providers]
    if intervals_s and watch.hold_for_s:
        yield "hold_for", watch.hold_for_s, min(intervals_s), "offers are polled"


def _round_s(settings: Settings, name: str) -> float:
    """Duration of one round of a provider's hunt: `poll_every`, or longer with many watches."""
    provider = settings.providers[name]
    watches = [watch for watch in settings.watches if watch.providers is None or name in watch.providers]
    queries = len(watches) + sum(watch.spot is SpotPolicy.ANY for watch in watches)
    return max(provider.poll_every_s, queries * provider.search_interval_s)


def _listed_durations(watch: Watch) -> Iterator[tuple[str, float | None, float, str]]:
    """Durations that depend on how often instances are listed."""
    launch = watch.launch
    if launch is None:
        return
    running = (("idle_for", launch.idle_for_s), ("max_runtime", launch.max_runtime_s))
    wasteful = (("wasteful_for", launch.wasteful_for_s),) if launch.wasteful_below is not None else ()
    for key, span_s in (*running, *wasteful):
        yield f"launch.{key}", span_s, RUNNING_EVERY_S, "instances are listed"
    yield "launch.ready_within", launch.ready_within_s, CHANGING_EVERY_S, "instances that start are listed"
