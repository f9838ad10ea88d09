"""False alarms and power of the calendar, on synthetic and on shuffled public prices."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import numpy as np

from benchmarks.calendar_accuracy import FIRST_HOUR, PARTS, PROCESSES, ZONE, answered, found_share, quiet_share
from benchmarks.evidence.claims import Claim, Section, at_least, at_most, clustered_error, judged

WEEKS = 8
SEED = 20_261_122  # not used while the method was chosen
MOST_ALARMS, LEAST_POWER = 0.05, 0.80
SHUFFLED = ("public, shuffled",)
MORE = dict.fromkeys(SHUFFLED, 7)  # times as many runs, because the claim is about this kind
CLUSTERED = ("plateaus, 12 h", "plateaus, 3 days", "plateaus, 7 days", "plateaus that wander", "a few jumps")
TABLE = (4.50, 5.50, 2.80, 3.50)  # by day from, to; at night and at weekends from, to: the price table of the guides


def calendar_section(runs: int) -> Section:
    """Return how often it is right, over `runs` runs for each kind of price."""
    runs_of = {name: runs * MORE.get(name, 1) for name in PROCESSES}
    quiet = {name: quiet_share(process, WEEKS, runs_of[name], SEED) for name, process in PROCESSES.items()}
    night = next(at for at, part in enumerate(PARTS) if part.name == "night")
    power = {name: found_share(process, WEEKS, runs, night, 0.05) for name, process in PROCESSES.items()}
    weak = sorted(power, key=lambda name: power[name][0])[:3]
    notes = [
        f"{WEEKS} weeks of hours, {runs} runs for each of {len(PROCESSES)} kinds of price, for false alarms "
        f"{MORE[SHUFFLED[0]]} times as many of the shuffled ones, seed {SEED}; a false alarm is any "
        "difference that any comparison of a run claims; nothing is left out",
        "nights that are 5 % cheaper are found least often among: "
        + ", ".join(f"{name} ({power[name][0]:.0%})" for name in weak),
        "synthetic prices stand for markets without a record of eight weeks (an assumption)",
    ]
    return Section("Calendar", "calendar.md", [*_alarms(quiet, runs_of), *_found(power, runs), *_table()], notes)


def _alarms(quiet: dict[str, float], runs_of: dict[str, int]) -> list[Claim]:
    groups = {"shuffled public prices": SHUFFLED, "clustered prices": CLUSTERED, "all kinds": tuple(quiet)}
    claims = []
    for what, names in groups.items():
        alarms = 1 - float(np.mean([quiet[name] for name in names]))
        sample = f"{sum(runs_of[name] for name in names)} runs"
        claims.append(at_most(f"false alarms, {what}", alarms, MOST_ALARMS, sample))
    return claims


def _found(power: dict[str, tuple[float, float]], runs: int) -> list[Claim]:
    sample = f"{len(power) * runs} runs"
    found, held = (float(np.nanmean([one[at] for one in power.values()])) for at in (0, 1))
    return [
        at_least("nights 5 % cheaper are found in 8 weeks", found, LEAST_POWER, sample),
        at_least(
            "the 95 % interval holds the true 5 %",
            held,
            0.95,
            sample,
            clustered_error([one[1] for one in power.values()], list(power)),
        ),
    ]


def _table() -> list[Claim]:
    """Return the claims for six weeks of exactly the guides' table, at both ends of its ranges."""
    claims = []
    for by_day, at_night in ((TABLE[0], TABLE[2]), (TABLE[1], TABLE[3])):
        logs = np.array([math.log((at_night if _is_off_peak(at) else by_day) / 2) for at in range(6 * 168)])
        effects, _, _ = answered(logs, FIRST_HOUR, 0)
        true = 100 * (1 - at_night / by_day)
        worst = max(abs((effect.cheaper_percent or 0.0) - true) for effect in effects)
        shown = ", ".join(f"{effect.cheaper_percent:.1f} %" for effect in effects if effect.cheaper_percent is not None)
        text = f"{by_day:.2f} by day and {at_night:.2f} off-peak: {', '.join(part.name for part in PARTS)}"
        claims.append(Claim(text, shown, f"{true:.1f} %", "6 weeks", judged(worst < 0.1)))
    return claims


def _is_off_peak(hour: int) -> bool:
    local = (datetime.fromtimestamp(0, UTC) + timedelta(hours=FIRST_HOUR + hour)).astimezone(ZONE)
    return local.weekday() >= 5 or local.hour >= 22 or local.hour < 8
