"""What a watch does, and why it does not act, in words for its owner."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from gpuwatch.app.reader_text import clock_text, reader_clock, span
from gpuwatch.domain.launches.launch import RefusalReason
from gpuwatch.domain.launches.life.admission import BlockReason
from gpuwatch.domain.launches.refusal_words import TimeWords, refusal_words
from gpuwatch.domain.market import money
from gpuwatch.domain.market.money import microusd, rate_text, usd
from gpuwatch.domain.watches.watch import Action, SpotPolicy
from gpuwatch.domain.watches.windows import opens_at
from gpuwatch.language import translate as _
from gpuwatch.language import translate_composed, translate_plural

if TYPE_CHECKING:
    from gpuwatch.app.watches.watch_status import WatchStatus
    from gpuwatch.domain.launches.life.admission import WatchBlock
    from gpuwatch.domain.launches.rule_check import RuleCheck
    from gpuwatch.domain.watches.watch import Watch

ON_PAGES = TimeWords(clock_text, span)


# --- what it does -----------------------------------------------------------------------------------------------------


def does_text(watch: Watch) -> str:
    """What it does with an offer: "Rents by itself"."""
    return {
        Action.ALERT: _("Alerts only"),
        Action.ASK: _("Asks you first"),
        Action.LAUNCH: _("Rents by itself"),
        Action.COMMAND: _("Runs a command"),
    }[watch.action]


def count_range(watch: Watch) -> str:
    """ "1", "1–2": the GPUs per offer."""
    low, high = watch.gpu_count_min, watch.gpu_count_max
    return f"{low}" if low == high else f"{low}–{high}"


def wanted_text(watch: Watch) -> str:
    """ "H100, 1–2 GPUs": what it looks for."""
    if not watch.gpu_count_max:
        text = _("a machine without GPUs")
        return (
            _("{offers} in {regions}").format(offers=text, regions=", ".join(watch.regions)) if watch.regions else text
        )
    text = translate_plural("{gpus}, {count} GPU", "{gpus}, {count} GPUs", watch.gpu_count_max)
    text = text.format(gpus=", ".join(watch.gpu), count=count_range(watch))
    return _("{offers} in {regions}").format(offers=text, regions=", ".join(watch.regions)) if watch.regions else text


def rental_text(watch: Watch) -> str:
    """ "On demand"."""
    return {
        SpotPolicy.NO: _("On demand"),
        SpotPolicy.ONLY: _("Spot"),
        SpotPolicy.ANY: _("Both"),
        SpotPolicy.FIRST: _("Spot first"),
    }[watch.spot]


# --- why it does not act ----------------------------------------------------------------------------------------------


def why_not(watch: Watch, block: WatchBlock, under_since: datetime | None = None) -> str:
    """Why a watch does not act, as the rest of a sentence: "one machine already runs, and this watch allows one"."""
    if block.check is not None:
        return refusal_words(block.check, block.text, ON_PAGES)
    if block.reason is BlockReason.OUTSIDE_ACTIVE:
        clock = reader_clock()
        opens = opens_at(watch.active, clock.now, clock.zone)
        return _("it is outside its hours; next at {time}").format(time=clock_text(opens))
    if block.reason is BlockReason.HOLD_FOR:
        held_s = (reader_clock().now - under_since).total_seconds() if under_since else 0.0
        text = _("it has been under the limit for {time} of {all}")
        return text.format(time=span(held_s), all=span(watch.hold_for_s))
    if block.until is not None:
        return _("it waits for a spot offer until {time}").format(time=clock_text(block.until))
    words: dict[str, str] = {
        BlockReason.APPROVAL: _("it waits for your answer"),
        BlockReason.DENIED: _("you denied this offer; it is not asked again for 24 h"),
        BlockReason.DRY_RUN: _("this is a dry run, which rents nothing"),
        BlockReason.IN_STOCK: _("its offers have not been sold out since it began"),
    }
    return words.get(block.reason) or _("no provider is ready: {why}").format(why=translate_composed(block.text))


def budget_name(check: RuleCheck) -> str:
    """ "Daily budget"; of a budget that only this watch has: "Its daily budget"."""
    own = {
        RefusalReason.MAX_USD_HOUR: _("Its hourly budget"),
        RefusalReason.MAX_USD_DAY: _("Its daily budget"),
        RefusalReason.MAX_USD_MONTH: _("Its monthly budget"),
        RefusalReason.MAX_INSTANCES: _("Its machines at once"),
    }
    everyone = {
        RefusalReason.MAX_USD_HOUR: _("Hourly budget"),
        RefusalReason.MAX_USD_DAY: _("Daily budget"),
        RefusalReason.MAX_USD_MONTH: _("Monthly budget"),
        RefusalReason.MAX_INSTANCES: _("Machines at once"),
    }
    return (own if check.of_watch else everyone)[check.rule]


def amount(microusd_amount: int) -> str:
    """ "$17.81"."""
    return money.dollars(usd(microusd_amount))


def limit_microusd(watch: Watch) -> int | None:
    """The limit in micro-dollars per GPU-hour; None: it has none, or it limits the cost of a job."""
    if watch.unlimited or watch.max_job_cost_usd is not None:
        return None
    return microusd(watch.max_price_usd_gpu_hour)


def limit_text(status: WatchStatus) -> str:
    """ "$1.90", "$1.80, automatic", "$40 for the job"."""
    watch = status.watch
    if watch.max_job_cost_usd is not None:
        return _("{cost} for the job").format(cost=money.dollars(watch.max_job_cost_usd))
    limit = limit_microusd(watch)
    if limit is None:
        return _("none")
    against = None if status.nearest is None else status.nearest.price_microusd_gpu_hour
    text = rate_text(limit, against)
    return _("{limit}, automatic").format(limit=text) if watch.auto is not None else text
