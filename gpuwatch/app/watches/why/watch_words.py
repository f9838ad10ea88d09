"""What a watch does, and why it does not act, in words for its owner."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from gpuwatch.app.reader_text import clock_text, reader_clock, span
from gpuwatch.domain.launches.launch import RefusalReason
from gpuwatch.domain.launches.life.admission import BlockReason
from gpuwatch.domain.market import money
from gpuwatch.domain.market.money import microusd, rate_text, usd
from gpuwatch.domain.watches.watch import Action, SpotPolicy
from gpuwatch.domain.watches.windows import opens_at
from gpuwatch.language import translate as _
from gpuwatch.language import translate_plural

if TYPE_CHECKING:
    from gpuwatch.app.watches.watch_status import WatchStatus
    from gpuwatch.domain.launches.life.admission import WatchBlock
    from gpuwatch.domain.launches.rule_check import RuleCheck
    from gpuwatch.domain.watches.watch import Watch

_DAY_S = 86_400.0


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
    text = translate_plural("{gpus}, {count} GPU", "{gpus}, {count} GPUs", watch.gpu_count_max)
    text = text.format(gpus=", ".join(watch.gpu), count=count_range(watch))
    return _("{offers} in {regions}").format(offers=text, regions=", ".join(watch.regions)) if watch.regions else text


def rental_text(watch: Watch) -> str:
    """ "On demand"."""
    return {
        SpotPolicy.NO: _("On demand"),
        SpotPolicy.ONLY: _("Spot"),
        SpotPolicy.ANY: _("Both"),
    }[watch.spot]


# --- why it does not act ----------------------------------------------------------------------------------------------


def why_not(watch: Watch, block: WatchBlock, under_since: datetime | None = None) -> str:
    """Why a watch does not act, as the rest of a sentence: "one machine already runs, and this watch allows one"."""
    if block.check is not None and (with_figures := _WITH_FIGURES.get(block.reason)) is not None:
        return with_figures(watch, block.check)
    if block.reason is BlockReason.OUTSIDE_ACTIVE:
        clock = reader_clock()
        opens = opens_at(watch.active, clock.now, clock.zone)
        return _("it is outside its hours; next at {time}").format(time=clock_text(opens))
    if block.reason is BlockReason.HOLD_FOR:
        held_s = (reader_clock().now - under_since).total_seconds() if under_since else 0.0
        text = _("it has been under the limit for {time} of {all}")
        return text.format(time=span(held_s), all=span(watch.hold_for_s))
    return _plain(block)


def _plain(block: WatchBlock) -> str:
    words = {
        BlockReason.APPROVAL: _("it waits for your answer"),
        BlockReason.DENIED: _("you denied this offer; it is not asked again for 24 h"),
        BlockReason.DRY_RUN: _("this is a dry run, which rents nothing"),
        BlockReason.IN_STOCK: _("its offers have not been sold out since it began"),
        RefusalReason.COOLING: _("the last try failed; it waits before the next one"),
        RefusalReason.NO_CREDIT: _("there is no credit left"),
        RefusalReason.OFFER_TAKEN: _("another of your machines already has the offer"),
        RefusalReason.MACHINE_FAILED: _("the machine failed lately, or you blocked it"),
        RefusalReason.MAX_ACTIVE: _("its job does not wait for a machine any more"),
        RefusalReason.RENAMED: _("it may be a watch that you renamed while its machine runs"),
        RefusalReason.STRANGERS: _(  # word-check: allow - a stored value
            "the database is new, but machines with gpuwatch's label run"
        ),
    }
    if (text := words.get(block.reason)) is not None:
        return text
    return _("no provider is ready: {why}").format(why=block.text)


def _active(_watch: Watch, check: RuleCheck) -> str:
    if check.limit is None:
        return _("its job does not wait for a machine any more")
    if check.limit == 1:
        return _("one machine already runs, and this watch allows one")
    return _("{count} machines run, and this watch allows {limit}").format(count=check.used, limit=check.limit)


def _total(_watch: Watch, check: RuleCheck) -> str:
    text = translate_plural(
        "it has rented the one machine you allowed", "it has rented all {limit} machines you allowed", check.limit or 0
    )
    return text.format(limit=check.limit)


def _per_day(_watch: Watch, check: RuleCheck) -> str:
    text = translate_plural(
        "it has rented {count} machine today, as many as you allowed; the next day begins at {time}",
        "it has rented {count} machines today, as many as you allowed; the next day begins at {time}",
        check.used,
    )
    return text.format(count=check.used, time=clock_text(check.until))


def _instances(_watch: Watch, check: RuleCheck) -> str:
    return _("{count} of {limit} machines run").format(count=check.used, limit=check.limit)


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


def _budget(watch: Watch, check: RuleCheck) -> str:
    left = max(0, (check.limit or 0) - check.used)
    if check.rule is RefusalReason.MAX_USD_HOUR:
        text = _("the hourly budget has {left}/h left, and this machine costs {cost}/h")
        return text.format(left=rate_text(left, check.cost), cost=rate_text(check.cost, left))
    texts = {
        RefusalReason.MAX_USD_DAY: _("the daily budget has {left} left; {time} would cost {cost}"),
        RefusalReason.MAX_USD_MONTH: _("the monthly budget has {left} left; {time} would cost {cost}"),
    }
    return texts[check.rule].format(left=amount(left), time=longest_text(watch, check), cost=amount(check.cost))


def longest_text(watch: Watch, check: RuleCheck) -> str:
    """ "12 h": the time that a budget counts for a new machine."""
    runtime_s = (watch.launch and watch.launch.max_runtime_s) or _DAY_S
    is_day = check.rule is RefusalReason.MAX_USD_DAY
    whole_s = min(runtime_s, _DAY_S) if is_day else runtime_s
    hours = whole_s / 3600
    return _("{hours} h").format(hours=f"{hours:g}") if hours == int(hours) else span(whole_s)


def amount(microusd_amount: int) -> str:
    """ "$17.81"."""
    return money.dollars(usd(microusd_amount))


def pause_text(until: datetime | None, why: str, *, of_watch: bool) -> str:
    """ "you paused it until Mon 08:00: “budget”"."""
    if of_watch:
        text = _("you paused it until {time}") if until else _("you paused it")
    else:
        text = _("you paused renting until {time}") if until else _("you paused renting")
    said = text.format(time=clock_text(until))
    return _("{sentence}: “{why}”").format(sentence=said, why=why) if why else said


def _paused(_watch: Watch, check: RuleCheck) -> str:
    return pause_text(check.until, check.why, of_watch=check.of_watch)


def _breaker(_watch: Watch, check: RuleCheck) -> str:
    text = _("several launches in a row failed; it tries once more at {time}")
    return text.format(time=clock_text(check.until))


def _checklist(_watch: Watch, check: RuleCheck) -> str:
    left = (check.limit or 0) - check.used
    text = translate_plural(
        "{left} of {limit} items of its checklist is not ticked",
        "{left} of {limit} items of its checklist are not ticked",
        left,
    )
    return text.format(left=left, limit=check.limit)


_WITH_FIGURES: Mapping[str, Callable[[Watch, RuleCheck], str]] = {
    RefusalReason.MAX_ACTIVE: _active,
    RefusalReason.MAX_TOTAL: _total,
    RefusalReason.MAX_PER_DAY: _per_day,
    RefusalReason.MAX_INSTANCES: _instances,
    RefusalReason.MAX_USD_HOUR: _budget,
    RefusalReason.MAX_USD_DAY: _budget,
    RefusalReason.MAX_USD_MONTH: _budget,
    RefusalReason.PAUSED: _paused,
    RefusalReason.BREAKER: _breaker,
    RefusalReason.CHECKLIST: _checklist,
}


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
