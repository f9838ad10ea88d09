"""The progress of a run, from its command's output or records: metrics.jsonl, state of HF's Trainer, log. Pure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from gpuwatch.domain.jobs.job import Job, JobRun
from gpuwatch.domain.launches.launch import Launch
from gpuwatch.domain.launches.money.launch_costs import cost_microusd
from gpuwatch.domain.market.money import MICRO
from gpuwatch.domain.plan.buy import LOW_UTILISATION_PERCENT
from gpuwatch.domain.plan.figures import FigureRange
from gpuwatch.domain.plan.job_hours import VARIATION

_END_LEAST_S, _END_MOST_S = 60.0, 600.0  # after the last step of a run (assumed; as long as its start within these)
_SCATTER = 0.25  # of the time between two reports (assumed)
_LEAST_S = 60.0  # the first minute is mostly about the start of the command (assumed)
_LINES_READ = 200
_SMALL_BATCH = "small batch: less than half of the GPU memory is used; try a larger batch"
_FRACTION_KEYS = ("progress", "fraction")
_STEP_KEYS = ("step", "global_step", "iter", "iteration")
_TOTAL_KEYS = ("total_steps", "max_steps", "steps", "max_iters")
_SPEED_KEYS = ("tokens_per_s", "tokens_per_second", "tokens_per_sec", "train_tokens_per_second", "tok_s")
_LOSS_KEYS = ("loss", "train_loss")
_TRAINER = {
    "step": re.compile(r'"(?:global_)?step": ?([0-9]{1,12})'),
    "total_steps": re.compile(r'"max_steps": ?([0-9]{1,12})'),
    "loss": re.compile(r'"loss": ?([0-9.eE+-]{1,24})'),
}
_OF_TOTAL = re.compile(r"(?:\bstep|\biter|\biteration|\|)\D{0,3}([0-9]{1,12}) ?/ ?([0-9]{1,12})\b", re.IGNORECASE)
_PERCENT = re.compile(r"\b([0-9]{1,3}(?:\.[0-9]{1,3})?)%\|")
_SPEED = re.compile(
    r"\b(?:tokens|tok)[/_ ](?:per[_ ])?s(?:ec(?:ond)?)?\b\D{0,3}([0-9][0-9,]{0,14}(?:\.[0-9]{1,6})?)", re.I
)
_SPEED_BEFORE = re.compile(r"\b([0-9][0-9,]{0,14}(?:\.[0-9]{1,6})?) ?(?:tokens|tok)/s", re.IGNORECASE)
_LOSS = re.compile(r"\bloss\W{1,3}([0-9]{1,6}(?:\.[0-9]{1,12})?(?:e[+-]?[0-9]{1,3})?)", re.IGNORECASE)

ProgressPoint = tuple[datetime, float]
_POINTS_MOST = 64


class RunProgress(msgspec.Struct, frozen=True, kw_only=True):
    """Progress as the command reports it; None: not reported.

    Attributes:
        fraction: 0 to 1.
        steps: done, and in all.
        tokens_per_s: the newest figure.
    """

    fraction: float | None = None
    steps: tuple[int, int] | None = None
    tokens_per_s: float | None = None
    loss: float | None = None


class RunForecast(msgspec.Struct, frozen=True, kw_only=True):
    """The predicted end and cost of a run at its present speed. `reports`: how often its progress grew before."""

    ends_at: tuple[datetime, datetime]
    usd: FigureRange
    reports: int = 1


def grown(seen: tuple[ProgressPoint, ...], point: ProgressPoint) -> tuple[ProgressPoint, ...]:
    """Add an observation if the progress grew; of very many, every second one stays, the first and last included."""
    if point[1] <= seen[-1][1]:
        return seen
    kept = seen if len(seen) < _POINTS_MOST else (*seen[:-1:2], seen[-1])
    return (*kept, point)


def parse_progress(log: str, metrics: bytes = b"") -> RunProgress:
    """The progress of a run, from the command's own record, else from the end of its log."""
    known = _of_lines(metrics.decode("utf-8", "replace"))
    if known.fraction is None and b'"max_steps"' in metrics:
        known = _merge(known, _of_trainer(metrics.decode("utf-8", "replace")))
    return _merge(known, _of_log(log))


def losses(log: str, metrics: bytes = b"") -> list[float]:
    """The newest losses, oldest first, from the command's own record, else from the end of its log."""
    text = metrics.decode("utf-8", "replace")
    lines = [_of_lines(line).loss for line in text.splitlines()[-_LINES_READ:]]
    kept = [line for line in lines if line is not None]
    kept = kept or [one for found in _TRAINER["loss"].findall(text) if (one := _number(found)) is not None]
    return kept or [one for found in _LOSS.findall(log.replace("\r", "\n")) if (one := _number(found)) is not None]


def extrapolate(
    now: datetime,
    fraction: float,
    before: ProgressPoint,
    usd_hour: float,
    spent_usd: float,
    *,
    seen: Sequence[ProgressPoint] = (),
) -> RunForecast | None:
    """Extrapolate a run; None: too little is done for a forecast.

    The interval spans the speed of the whole run, which includes its start, and that of the newer half of its reports.
    It is wider the fewer reports there are or follow, and ends later by what nothing was measured of: the last
    evaluation, saving, fetching, and the end of the instance.

    Args:
        before: an earlier time, and the fraction done by then.
        spent_usd: spent so far, over all runs.
        seen: the observations since `before`, that one included, at which progress grew.
    """
    done_s, done = (now - before[0]).total_seconds(), fraction - before[1]
    points = list(seen) if len(seen) > 1 else [before, (now, fraction)]
    reports = len(points) - 1
    if not 0 < done <= 1 or done_s <= 0 or (seen and done_s < _LEAST_S):
        return None
    middle, last = points[reports // 2], points[-1]
    newer_s = (last[0] - middle[0]).total_seconds()
    left_s = [done_s / done * (1 - fraction)]
    if reports > 1 and newer_s > 0:
        left_s.append(newer_s / (last[1] - middle[1]) * (1 - fraction))
    ahead = max(reports * (1 - fraction) / done, 1.0)  # reports that are still to come
    factor = VARIATION + 1 / reports + _SCATTER / math.sqrt(ahead)
    begun_s = (points[1][0] - before[0]).total_seconds()  # until its first report
    low = max(min(left_s) / factor, 0.0)
    high = max(left_s) * factor + min(max(begun_s, _END_LEAST_S), _END_MOST_S)
    usd = FigureRange(spent_usd + low / 3600 * usd_hour, spent_usd + high / 3600 * usd_hour)
    ends_at = now + timedelta(seconds=low), now + timedelta(seconds=high)
    return RunForecast(ends_at=ends_at, usd=usd, reports=reports)


def run_cost_microusd(run: JobRun | None, launch: Launch, now: datetime) -> int:
    """A run's share of the cost of its launch, by time, because instances may be shared. None: it has the whole launch.

    The last run pays what minimum billing adds after the end.
    """
    if run is None:
        return cost_microusd(launch, now)
    after = 0 if run.held_until is None else cost_microusd(launch, now, since=run.held_until)
    return cost_microusd(launch, now, since=run.held_from) - after


def spent_usd(job: Job, run: JobRun, launch: Launch, now: datetime) -> float:
    """USD spent so far: the sum recorded every minute for all runs, or the cost of this run if that is higher."""
    return max(job.spent_microusd, run_cost_microusd(run, launch, now)) / MICRO


def bottleneck(
    gpu_percent: float | None,
    *,
    memory_share: float | None = None,
    cpu_busy: float | None = None,
    io_wait: float | None = None,
    cpus: int | None = None,
) -> str | None:
    """What the GPU is probably waiting for; None: it is busy, or utilisation was not measured.

    Args:
        memory_share: used share of the GPU's memory, 0 to 1.
        cpu_busy: busy share of the time of all processors, 0 to 1.
        io_wait: share of the time in which processors waited for a disk.
    """
    if gpu_percent is None or gpu_percent >= LOW_UTILISATION_PERCENT:
        return None
    has_room = memory_share is not None and memory_share < 0.5
    if io_wait is not None and io_wait >= 0.15:
        return "disk: the processors wait for it; copy the data to the local disk, or read it in larger blocks"
    if cpu_busy is not None and cpu_busy >= 0.85:
        return "CPU: all processors are busy; tokenise and decode the data beforehand"
    if cpu_busy is not None and cpus and cpu_busy * cpus <= 1.5:
        loader = "data loader: only one processor works; use more workers, and pinned memory"
        return f"{loader}; or a {_SMALL_BATCH}" if has_room else loader
    if has_room:
        return _SMALL_BATCH
    return "data loader: the GPU waits for the next batch; use more workers and prefetching"


# --- sources ----------------------------------------------------------------------------------------------------------
def _of_lines(text: str) -> RunProgress:
    values: dict[str, Any] = {}
    for line in text.splitlines()[-_LINES_READ:]:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            values |= found
    steps = _steps(_first(values, _STEP_KEYS), _first(values, _TOTAL_KEYS))
    fraction = _first(values, _FRACTION_KEYS)
    if fraction is None:
        fraction = _share(steps)
    speed, loss = _first(values, _SPEED_KEYS), _first(values, _LOSS_KEYS)
    return RunProgress(fraction=_valid(fraction), steps=steps, tokens_per_s=speed, loss=loss)


def _of_trainer(text: str) -> RunProgress:
    found = {name: pattern.findall(text) for name, pattern in _TRAINER.items()}
    steps = [float(one) for one in found["step"]]
    totals = [float(one) for one in found["total_steps"]]
    loss = _number(found["loss"][-1]) if found["loss"] else None
    known = _steps(max(steps, default=None), totals[-1] if totals else None)
    return RunProgress(fraction=_share(known), steps=known, loss=loss)


def _of_log(log: str) -> RunProgress:
    text = "\n".join(log.replace("\r", "\n").splitlines()[-_LINES_READ:])
    found, percents = _OF_TOTAL.findall(text), _PERCENT.findall(text)
    steps = _steps(float(found[-1][0]), float(found[-1][1])) if found else None
    fraction = _share(steps)
    if fraction is None and percents:
        fraction = float(percents[-1]) / 100
    speeds = _SPEED_BEFORE.findall(text) or _SPEED.findall(text)
    losses = _LOSS.findall(text)
    return RunProgress(
        fraction=_valid(fraction),
        steps=steps,
        tokens_per_s=_number(speeds[-1].replace(",", "")) if speeds else None,
        loss=_number(losses[-1]) if losses else None,
    )


def _merge(first: RunProgress, second: RunProgress) -> RunProgress:
    chosen = {
        name: getattr(second, name) if getattr(first, name) is None else getattr(first, name)
        for name in RunProgress.__struct_fields__
    }
    return RunProgress(**chosen)


def _first(values: dict[str, Any], names: tuple[str, ...]) -> float | None:
    for name in names:
        value = values.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and _is_sane(value):
            return float(value)
    return None


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if _is_sane(value) else None


def _is_sane(value: float) -> bool:
    return 0 <= value < 1e15 and math.isfinite(value)


def _steps(step: float | None, total: float | None) -> tuple[int, int] | None:
    return (int(step), int(total)) if step is not None and total and step <= total else None


def _share(steps: tuple[int, int] | None) -> float | None:
    return None if steps is None else steps[0] / steps[1]


def _valid(fraction: float | None) -> float | None:
    return fraction if fraction is not None and 0 <= fraction <= 1 else None
