"""Whether an instance is what was promised, and whether it works. Pure.

- It is compared with its offer. Missing values and impossible numbers do not count as a mismatch.
- Samples of GPU utilisation: idle time and wasted money. A missing sample is unknown: it neither counts nor interrupts
  a run. If there was no poll for longer than the whole span of a rule, older samples prove nothing, and the count
  starts again.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal

import msgspec

from gpuwatch.domain.launches.instance import Instance
from gpuwatch.domain.launches.instances.end_rules import EndCause
from gpuwatch.domain.launches.launch import EndReason, Launch
from gpuwatch.domain.market.figure_text import number_text
from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.domain.plan.buy import useful_usd_hour

MEMORY_SHARE = 0.97  # drivers reserve and round some
SPEED_SHARE = 0.7  # one measurement over a few seconds is below a line's best
_MIB_A_GIB = 1024.0

LOOK_BACK = 3  # times the span: the maximum age of a usable sample


class MeasuredInstance(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements on the instance itself. None, or empty: could not be measured."""

    gpus: tuple[tuple[str, float], ...] = ()  # (name as nvidia-smi spells it, MiB)
    download_mbps: float | None = None


class UtilisationSample(msgspec.Struct, frozen=True):
    """GPU utilisation in one poll, in percent of all GPUs; None: not reported."""

    at: datetime
    percent: float | None


def listing_mismatch(launch: Launch, instance: Instance) -> EndCause | None:
    """Compare the provider's list with the offer; None: everything is at least as promised."""
    promised = launch.promised
    words = (
        _other_gpu(launch, instance)
        or _fewer(instance.gpu_count, launch.gpu_count, "GPUs")
        or _less(instance.gpu_memory_gib, promised.gpu_memory_gib, "GiB of GPU memory", MEMORY_SHARE)
        or _less(instance.disk_gb, promised.disk_gb, "GB of disk")
        or _less(instance.cuda, promised.cuda, "CUDA")
    )
    return None if words is None else (EndReason.NOT_AS_PROMISED, words)


def measurement_mismatch(launch: Launch, inside: MeasuredInstance) -> EndCause | None:
    """Compare the instance itself with the offer.

    Of a GPU name only the family counts, because drivers spell names differently.
    """
    if not inside.gpus:
        return None
    words = _fewer(len(inside.gpus), launch.gpu_count, "GPUs") or _other_family(launch, inside.gpus)
    least = min((mib / _MIB_A_GIB for _, mib in inside.gpus if mib > 0), default=None)
    words = words or _less(least, launch.promised.gpu_memory_gib, "GiB of GPU memory", MEMORY_SHARE)
    return None if words is None else (EndReason.NOT_AS_PROMISED, f"nvidia-smi shows {words}")


def slow_download(measured_mbps: float | None, wanted_mbps: float | None) -> EndCause | None:
    """Compare the measured download speed with the watch's minimum; an unknown speed does not count as slow."""
    if measured_mbps is None or wanted_mbps is None or not measured_mbps < wanted_mbps * SPEED_SHARE:
        return None
    return EndReason.TOO_SLOW, f"{measured_mbps:.0f} of {wanted_mbps:.0f} Mbit/s download"


def _other_gpu(launch: Launch, instance: Instance) -> str | None:
    """Some names differ only by memory: if the memory is unknown, only the family counts."""
    gpu, wanted = instance.gpu, catalog().get(launch.gpu)
    if gpu is None or catalog().may_be(gpu, launch.gpu):
        return None
    found = catalog().get(gpu)
    same_family = wanted is not None and found is not None and found.family == wanted.family
    return None if same_family and instance.gpu_memory_gib is None else f"{gpu} instead of {launch.gpu}"


def _other_family(launch: Launch, gpus: Sequence[tuple[str, float]]) -> str | None:
    wanted = catalog().get(launch.gpu)
    if wanted is None:
        return None
    for spelling, mib in gpus:
        found = catalog().resolve(spelling, mib / _MIB_A_GIB)
        if found.known and found.family != wanted.family and not catalog().may_be(found.name, launch.gpu):
            return f"{found.name} instead of {launch.gpu}"
    return None


def _fewer(found: int | None, wanted: int, what: str) -> str | None:
    return f"{found} of {wanted} {what}" if found is not None and 0 < found < wanted else None


def _less(found: float | None, wanted: float | None, what: str, share: float = 1.0) -> str | None:
    if found is None or wanted is None or not 0 < found < wanted * share:
        return None
    return f"{what}: {number_text(found)} of {number_text(wanted)}"


def idle_cause(samples: Sequence[UtilisationSample], below: float, for_s: float, now: datetime) -> EndCause | None:
    """Return an end cause if every known sample of the last `for_s` is below `below`, and the first of them is that
    old.

    Args:
        samples: oldest first; those later than `now` (a clock that stepped back) are ignored.
        below: percent; a sample equal to it is not below it.
    """
    low = low_samples(samples, below, for_s, now)
    if len(low) < 2 or now - low[-1].at < timedelta(seconds=for_s):
        return None
    return (
        EndReason.IDLE,
        f"GPU utilisation {number_text(low[0].percent)} %, under {below:g} % since {low[-1].at:%H:%M} UTC",
    )


def low_samples(
    samples: Sequence[UtilisationSample], below: float, for_s: float, now: datetime
) -> list[UtilisationSample]:
    """Return the known samples below `below` up to now without one in between that is not, newest first.

    Arguments as `idle_cause`.
    """
    low: list[UtilisationSample] = []
    for sample in reversed(_since_gap(samples, timedelta(seconds=for_s), now)):
        if sample.percent is None:
            continue
        if sample.percent >= below:
            break
        low.append(sample)
    return low


def mean_utilisation(samples: Sequence[UtilisationSample], for_s: float, now: datetime) -> float | None:
    """Return the mean of the known samples of the last `for_s`.

    None: the samples do not reach back that far, or are fewer than two.
    """
    span = timedelta(seconds=for_s)
    known = [sample for sample in _since_gap(samples, span, now) if sample.percent is not None]
    if not known or now - known[0].at < span:
        return None
    values = [sample.percent for sample in known if now - sample.at <= span and sample.percent is not None]
    return sum(values) / len(values) if len(values) >= 2 else None


def useful_usd_gpu_hour(gpu_price_usd_hour: Decimal, percent: float) -> Decimal | None:
    """Return the price of one fully used GPU-hour, price ÷ utilisation, to the cent; None: utilisation is 0.

    Args:
        percent: 0 to 100.
    """
    found = useful_usd_hour(gpu_price_usd_hour, percent)
    return None if found is None else found.quantize(Decimal("0.01"))


def wasted_microusd(cost_microusd: int, percent: float) -> int:
    """Return the part of a cost that bought no work, at a mean utilisation of `percent`."""
    return round(cost_microusd * (1 - min(max(percent, 0.0), 100.0) / 100))


def _since_gap(samples: Sequence[UtilisationSample], span: timedelta, now: datetime) -> list[UtilisationSample]:
    """The samples, oldest first, after the last gap between polls longer than `span`."""
    unbroken: list[UtilisationSample] = []
    after = now
    for sample in reversed([sample for sample in samples if sample.at <= now]):
        if after - sample.at > span:
            break
        unbroken.append(sample)
        after = sample.at
    return unbroken[::-1]
