"""How long the store keeps what it records: `[history] keep`. Pure."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from gpuwatch.domain.setup.durations import DAY_S, DURATION_PATTERN
from gpuwatch.domain.setup.fields import Spec, about, seconds

FOREVER = math.inf


def _keep_span(value: Any) -> float:
    if value == "forever":
        return FOREVER
    span_s = seconds(value)
    if span_s < DAY_S:
        raise ValueError('expected "forever", or a duration of at least 1d')
    return span_s


_SCHEMA = {"type": "string", "pattern": f"^forever$|{DURATION_PATTERN}", "examples": ["30d", "400d", "forever"]}
KeepSpan = Annotated[float, BeforeValidator(_keep_span), WithJsonSchema(_SCHEMA)]


class HistoryKeep(Spec, frozen=True, kw_only=True):
    """`[history] keep`: how long rows stay in the store."""

    polls_s: Annotated[
        KeepSpan, about("Single polls with their errors; what they show of the market stays as long as intervals.")
    ] = 30.0 * DAY_S
    intervals_s: Annotated[
        KeepSpan, about("Exact prices; also settled alerts, answered approvals, ended jobs and scored forecasts.")
    ] = 400.0 * DAY_S
    hourly_s: Annotated[KeepSpan, about("Hourly prices.")] = FOREVER

    @classmethod
    def computed(cls, table: Any) -> dict[str, Any]:
        """Whatever is made of others is kept at least as long."""
        if not table.polls <= table.intervals <= table.hourly:
            raise ValueError("expected polls to be kept no longer than intervals, and intervals no longer than hourly")
        return {}
