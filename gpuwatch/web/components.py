"""Parts of pages that templates call: icons, chips of states, money, times, meters. Small charts: `app.history`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import wraps
from itertools import groupby, pairwise
from typing import Any

from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

from gpuwatch.app.history.svg_plots import stacked_bars, survival_chart
from gpuwatch.app.history.svg_small import range_bar, rank_strip, sparkline
from gpuwatch.app.reader_text import as_datetime, clock_text, distance, exact_text, moment_text, percent, with_unit
from gpuwatch.app.watches.nearest import provider_title
from gpuwatch.domain.market import money
from gpuwatch.domain.market.figure_text import UNKNOWN
from gpuwatch.domain.market.money import rate_text, usd
from gpuwatch.domain.market.offer import Offer
from gpuwatch.language import mark_text
from gpuwatch.language import translate as _

_WARN_FROM, _BAD_FROM = 80.0, 95.0  # percent of a limit
_NO_TONE, _GOOD, _WARN, _BAD, _LIVE = "", "good", "warn", "bad", "live"

# state → shape, colour, word: the shape and the word carry it, the colour repeats it
_STATES: Mapping[str, tuple[str, str, str]] = {
    "under": ("st-under", _GOOD, mark_text("Under limit")),
    "waiting": ("st-wait", _NO_TONE, mark_text("Waiting")),
    "paused": ("st-pause", _NO_TONE, mark_text("Paused")),
    "nodata": ("st-nodata", _WARN, mark_text("No data")),
    "open": ("st-ask", _WARN, mark_text("Waits for you")),
    "approved": ("st-done", _GOOD, mark_text("Approved")),
    "denied": ("st-fail", _NO_TONE, mark_text("Denied")),
    "expired": ("st-end", _NO_TONE, mark_text("Expired")),
    "refused": ("st-fail", _BAD, mark_text("Refused")),
    "starting": ("st-start", _LIVE, mark_text("Starting")),
    "running": ("st-run", _GOOD, mark_text("Running")),
    "stopping": ("st-stop", _WARN, mark_text("Stopping")),
    "searching": ("st-nodata", _WARN, mark_text("Looking for it")),
    "held": ("st-held", _BAD, mark_text("Needs your check")),
    "ended": ("st-end", _NO_TONE, mark_text("Ended")),
    "failed": ("st-fail", _BAD, mark_text("Failed")),
    "queued": ("st-wait", _NO_TONE, mark_text("Queued")),
    "renting": ("st-start", _LIVE, mark_text("Renting")),
    "preparing": ("st-start", _LIVE, mark_text("Preparing")),
    "fetching": ("download", _LIVE, mark_text("Fetching results")),
    "done": ("st-done", _GOOD, mark_text("Done")),
    "lost": ("st-lost", _WARN, mark_text("Interrupted, resumes")),
    "cancelled": ("st-end", _NO_TONE, mark_text("Cancelled")),
}


def icon(name: str, cls: str = "") -> Markup:
    """A picture of the sprite `icons.svg`, hidden from screen readers."""
    use = Markup('<svg class="i{}" aria-hidden="true"><use href="/static/icons.svg#{}"/></svg>')
    return use.format(f" {cls}" if cls else "", name)


def chip(state: str, text: str | None = None, tone: str | None = None) -> Markup:
    """The state of a thing.

    Args:
        text: what it says; None: the state's own word.
        tone: its colour; None: the state's own.
    """
    shape, own_tone, word = _STATES[state]
    cls = f"chip {own_tone if tone is None else tone}".rstrip()
    return Markup('<span class="{}">{}{}</span>').format(cls, icon(shape), _(word) if text is None else text)


def code(text: str) -> Markup:
    """A text that is typed or copied as it is."""
    return Markup("<code>{}</code>").format(text)


def replaced(text: str, pattern: re.Pattern[str], mark: Callable[[re.Match[str]], Markup]) -> Markup:
    """A text in which `mark` writes what the pattern finds."""
    parts, at = [], 0
    for found in pattern.finditer(text):
        parts += [Markup.escape(text[at : found.start()]), mark(found)]
        at = found.end()
    return Markup("").join([*parts, Markup.escape(text[at:])])


# --- money ------------------------------------------------------------------------------------------------------------


def per_hour(microusd: float | None, against: float | None = None, cls: str = "") -> Markup:
    """The price of a machine: $1.78/h. Arguments as `money.rate_text`."""
    return _rate(microusd, "/h", against, cls)


def per_gpu_hour(microusd: float | None, against: float | None = None, cls: str = "") -> Markup:
    """A GPU price: $1.48/GPU-h. Arguments as `money.rate_text`."""
    return _rate(microusd, "/GPU-h", against, cls)


def per_unit_hour(microusd: float | None, gpu_count: int, against: float | None = None, cls: str = "") -> Markup:
    """The price by which an offer is compared: of a GPU, or of a machine without GPUs. Arguments as `per_gpu_hour`."""
    return (per_gpu_hour if gpu_count else per_hour)(microusd, against, cls)


def _rate(microusd: float | None, unit: str, against: float | None, cls: str) -> Markup:
    if microusd is None:
        return Markup('<span class="price">{}</span>').format(UNKNOWN)
    return Markup('<span class="{}"><b>{}</b><span>{}</span></span>').format(
        f"price {cls}".rstrip(), rate_text(microusd, against), _(unit)
    )


def dollars(microusd: float | None) -> str:
    """An amount: $11.02; "–": unknown."""
    return UNKNOWN if microusd is None else money.dollars(usd(round(microusd)))


def dist(price_microusd: float, limit_microusd: float) -> Markup:
    """The distance of a price from its limit; over it is no alarm: waiting is normal."""
    is_under = price_microusd <= limit_microusd
    mark = icon("st-under", "s") if is_under else Markup("")
    return Markup('<span class="dist{}">{}{}</span>').format(
        " good" if is_under else "", mark, distance(price_microusd, limit_microusd)
    )


def hardware(gpu: str, gpu_count: int | str) -> str:
    """The GPUs of a machine: "1× H100 SXM"; "no GPU"."""
    return f"{gpu_count}× {gpu}" if gpu_count else _("no GPU")


def machine_without_gpus(offer: Offer) -> str:
    """ "no GPU, 16 vCPU, 64 GB": as far as its size is known."""
    sizes = [f"{offer.vcpu:g} vCPU"] if offer.vcpu else []
    sizes += [f"{offer.ram_gib:.0f} GB"] if offer.ram_gib else []
    return with_unit(", ".join((_("no GPU"), *sizes)))


# --- times ------------------------------------------------------------------------------------------------------------


def moment(at: datetime | str | None) -> Markup:
    """A time as people say it: "4 min ago", "08:24", "Fri 12:40", "24 Nov"; the whole one is its title."""
    return _time(at, moment_text(at))


def clock(at: datetime | str | None) -> Markup:
    """A time by the clock: "08:24", "Fri 12:40", "24 Nov"; the whole one is its title."""
    return _time(at, clock_text(at))


def until(at: datetime | str | None) -> Markup:
    """A time to come: "08:37", which a browser counts down: "in 10 min 36 s"."""
    return _time(at, clock_text(at), counts=True)


def _time(at: datetime | str | None, text: str, *, counts: bool = False) -> Markup:
    if at is None:
        return Markup.escape(UNKNOWN)
    mark = Markup(" data-until") if counts else ""
    stamp = as_datetime(at).isoformat(timespec="seconds")
    return Markup('<time datetime="{}" title="{}"{}>{}</time>').format(stamp, exact_text(at), mark, text)


# --- meters and charts ------------------------------------------------------------------------------------------------


def meter(  # noqa: PLR0913 most have a default
    used: float,
    limit: float,
    text: str,
    name: str,
    *,
    ahead: float | None = None,
    tone: str | None = None,
    marks: Sequence[float] = (),
) -> Markup:
    """A used part of a limit as a bar.

    Args:
        text: what a screen reader says, such as "$20.70 of $40.00".
        ahead: the expected use, hatched.
        tone: its colour; None: amber from 80 %, red from 95 %.
        marks: notches, as shares from 0 to 1, such as checkpoints.
    """
    share = min(100.0, 100 * used / limit) if limit > 0 else 100.0
    tone = tone if tone is not None else _BAD if share >= _BAD_FROM else _WARN if share >= _WARN_FROM else ""
    parts = [Markup('<rect class="m-track" width="100%" height="8" rx="4"/>')]
    if ahead is not None and limit > 0 and ahead > used:
        rest = min(100.0, 100 * ahead / limit) - share
        parts.append(Markup('<rect class="m-next" x="{:.1f}%" width="{:.1f}%" height="8"/>').format(share, rest))
    drawn = Markup('<rect class="{}" width="{:.1f}%" height="8" rx="4"/>')
    parts.append(drawn.format(f"m-used {tone}".rstrip(), max(share, 0.8)))
    parts += [Markup('<rect class="m-tick" x="{:.1f}%" width="2" height="8"/>').format(100 * one) for one in marks]
    whole = Markup(
        '<div role="meter" aria-label="{}" aria-valuemin="0" aria-valuemax="100" aria-valuenow="{:.0f}"'
        ' aria-valuetext="{}"><svg class="meter" aria-hidden="true">{}</svg></div>'
    )
    return whole.format(name, share, text, Markup("").join(parts))


def chart(data: Mapping[str, Any], label: str, inside: Markup | str = "", cls: str = "") -> Markup:
    """A large chart, drawn by the browser.

    Args:
        data: what `charts.js` reads; `x` are seconds since 1970, rising.
        label: for screen readers.
        inside: the same as SVG, for readers without JavaScript.
        cls: "small": less high.
    """
    text = htmlsafe_json_dumps(
        {**data, "x": _in_steps(data["x"])}, separators=(",", ":"), ensure_ascii=False
    )  # without quotation marks that would be escaped
    whole = Markup('<div class="{}" tabindex="0" role="group" aria-label="{}" data-chart=\'{}\'>{}</div>')
    return whole.format(f"chart {cls}".rstrip(), label, text, inside)


def _in_steps(times: Sequence[float]) -> list[Any]:
    """The first time, then [step, how often] of each run of equal steps: most charts have one."""
    steps = groupby(after - before for before, after in pairwise(times))
    return [*times[:1], *([step, len(list(run))] for step, run in steps)]


def _drawn(draw: Callable[..., str]) -> Callable[..., Markup]:
    """A small chart as markup: the drawing escapes every text."""

    @wraps(draw)
    def marked(*given: Any, **named: Any) -> Markup:
        return Markup(draw(*given, **named))  # noqa: S704 its texts are escaped

    return marked


def filled(text: str, **values: object) -> Markup:
    """A translated text that contains HTML, with its fields filled in: those are escaped."""
    return Markup(text).format(**values)  # noqa: S704 the text is gpuwatch's own


GLOBALS: Mapping[str, Callable[..., object]] = {
    **{draw.__name__: _drawn(draw) for draw in (sparkline, rank_strip, range_bar, stacked_bars, survival_chart)},
    "icon": icon,
    "chip": chip,
    "per_hour": per_hour,
    "per_gpu_hour": per_gpu_hour,
    "per_unit_hour": per_unit_hour,
    "hardware": hardware,
    "rate": rate_text,
    "dollars": dollars,
    "dollars_change": money.dollars_change,
    "whole_dollars": money.whole_dollars,
    "dollar_range": money.dollar_range,
    "dist": dist,
    "percent": percent,
    "moment": moment,
    "clock": clock,
    "until": until,
    "meter": meter,
    "chart": chart,
    "provider_title": provider_title,
}
