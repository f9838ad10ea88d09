"""The three small charts of a job with one cursor: loss, speed and GPU use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gpuwatch.app.reader_text import reader_clock
from gpuwatch.domain.jobs.run_sample import RunSample
from gpuwatch.domain.market.figure_text import number_text
from gpuwatch.language import mark_text
from gpuwatch.language import translate as _
from gpuwatch.web.chart_axes import time_ticks, value_ticks
from gpuwatch.web.launches.use_chart import LEVELS, with_gaps
from gpuwatch.web.page import PERCENT

_LEAST_POINTS, _MOST_POINTS = 2, 400
_CHARTS: Sequence[tuple[str, str, str, Callable[[RunSample], float | None]]] = (
    (mark_text("Loss"), "{value}", "plain", lambda sample: sample.loss),
    (mark_text("Speed"), "{value} tokens/s", "plain", lambda sample: sample.tokens_per_s),
    (mark_text("GPU use"), "{value} %", "percent", lambda sample: sample.gpu_percent),
)


def job_charts(samples: Sequence[RunSample]) -> list[dict[str, Any]]:
    """Return name, newest value and data of each chart with a line: two points at least; at most 400 points each."""
    step = -(-len(samples) // _MOST_POINTS) or 1
    thinned = list(reversed(samples[::-1][::step]))
    return [
        {"name": _(name), "newest": text.format(value=_newest(thinned, value_of)), "data": data}
        for name, text, kind, value_of in _CHARTS
        if (data := _chart(thinned, name, kind, value_of)) is not None
    ]


def _newest(samples: Sequence[RunSample], value_of: Callable[[RunSample], float | None]) -> str:
    return number_text(next((value for one in reversed(samples) if (value := value_of(one)) is not None), None))


def _chart(
    samples: Sequence[RunSample], name: str, kind: str, value_of: Callable[[RunSample], float | None]
) -> dict[str, Any] | None:
    known = [value for sample in samples if (value := value_of(sample)) is not None]
    if len(known) < _LEAST_POINTS:
        return None
    points, gaps = with_gaps(list(_points(samples, value_of)))
    start, end = samples[0].at, samples[-1].at
    limits, levels = (
        (PERCENT, [float(level) for level in LEVELS])
        if kind == "percent"
        else value_ticks([0.0, *known] if name == "Speed" else known)
    )
    return {
        "x": [at for at, _value in points], "zone": reader_clock().zone.key, "format": kind, "sync": "job",
        "gaps": gaps, "range": [points[0][0], max(points[-1][0], points[0][0] + 60)],
        "y": list(limits), "yticks": levels,
        "ticks": time_ticks(start, end), "pad": 20,
        "series": [{"label": _(name), "look": "area" if kind == "percent" else "line",
                    "values": [value for _at, value in points]}],
    }  # fmt: skip


def _points(
    samples: Sequence[RunSample], value_of: Callable[[RunSample], float | None]
) -> Iterator[tuple[int, float | None]]:
    """Yield second and value, with a hole between two runs."""
    before: RunSample | None = None
    for sample in samples:
        if before is not None and before.run_number != sample.run_number:
            yield int(before.at.timestamp()) + 1, None
        yield int(sample.at.timestamp()), value_of(sample)
        before = sample
