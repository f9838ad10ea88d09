"""Why a rule refuses a launch, in the words of its owner: for pages, alerts, mails and chats. Pure.

The text of a refusal (`LaunchRefusal.text`) names settings and commands, for the terminal and for programs. The words
name neither; they are the rest of a sentence: "one machine already runs, and this watch allows one".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from gpuwatch.domain.launches.launch import LaunchRefusal, RefusalReason
from gpuwatch.domain.launches.rule_check import RuleCheck
from gpuwatch.domain.market.figure_text import UNKNOWN
from gpuwatch.domain.market.money import dollars, rate_text, usd
from gpuwatch.domain.setup.durations import format_duration, format_moment
from gpuwatch.language import ENGLISH, translate_composed, translate_plural, use_language
from gpuwatch.language import translate as _


class TimeWords(NamedTuple):
    """How a face spells times and durations (in seconds)."""

    at: Callable[[datetime | None], str]
    span: Callable[[float], str]


# of what is stored: the zone of its reader is not known
_STORED = TimeWords(lambda at: UNKNOWN if at is None else format_moment(at, UTC), format_duration)


def first_refusal(checks: Iterable[RuleCheck]) -> LaunchRefusal | None:
    """Return the refusal of the first rule that refuses, or None. Later rules are not examined.

    It has its words, in English, as alerts and reasons are stored.
    """
    check = next((check for check in checks if check.refusal is not None), None)
    if check is None or check.refusal is None:
        return None
    with use_language(ENGLISH):
        return msgspec.structs.replace(check.refusal, words=refusal_words(check, check.refusal.text, _STORED))


def refusal_words(check: RuleCheck, text: str, times: TimeWords) -> str:
    """Return why a rule refuses, in the language of the context.

    Args:
        text: of the refusal, which says more where the rule has no figures.
    """
    with_figures = _WITH_FIGURES.get(check.rule)
    return _plain(check.rule, text) if with_figures is None else with_figures(check, times)


def _plain(rule: RefusalReason, text: str) -> str:
    return {
        RefusalReason.NO_CREDIT: _("there is no credit left"),
        RefusalReason.OFFER_TAKEN: _("another of your machines already has the offer"),
        RefusalReason.MACHINE_FAILED: _("the machine failed lately, or you blocked it"),
        RefusalReason.RENAMED: _("it may be a watch that you renamed while its machine runs"),
    }.get(rule) or translate_composed(text)


def _active(check: RuleCheck, _times: TimeWords) -> str:
    if check.limit is None:
        return _("its job does not wait for a machine any more")
    if check.limit == 1:
        return _("one machine already runs, and this watch allows one")
    return _("{count} machines run, and this watch allows {limit}").format(count=check.used, limit=check.limit)


def _total(check: RuleCheck, _times: TimeWords) -> str:
    text = translate_plural(
        "it has rented the one machine you allowed", "it has rented all {limit} machines you allowed", check.limit or 0
    )
    return text.format(limit=check.limit)


def _per_day(check: RuleCheck, times: TimeWords) -> str:
    text = translate_plural(
        "it has rented {count} machine today, as many as you allowed; the next day begins at {time}",
        "it has rented {count} machines today, as many as you allowed; the next day begins at {time}",
        check.used,
    )
    return text.format(count=check.used, time=times.at(check.until))


def _instances(check: RuleCheck, _times: TimeWords) -> str:
    return _("{count} of {limit} machines run").format(count=check.used, limit=check.limit)


def _hourly(check: RuleCheck, _times: TimeWords) -> str:
    left = max(0, (check.limit or 0) - check.used)
    text = _("the hourly budget has {left}/h left, and this machine costs {cost}/h")
    return text.format(left=rate_text(left, check.cost), cost=rate_text(check.cost, left))


def _amount(check: RuleCheck, times: TimeWords) -> str:
    is_day = check.rule is RefusalReason.MAX_USD_DAY
    text = (
        _("the daily budget has {left} left; {time} would cost {cost}")
        if is_day
        else _("the monthly budget has {left} left; {time} would cost {cost}")
    )
    left = dollars(usd(max(0, (check.limit or 0) - check.used)))
    return text.format(left=left, time=hours_text(check, times), cost=dollars(usd(check.cost)))


def hours_text(check: RuleCheck, times: TimeWords) -> str:
    """ "12 h": the time that a budget counts for a new machine."""
    hours = check.lasts_s / 3600
    return _("{hours} h").format(hours=f"{hours:g}") if hours == int(hours) else times.span(check.lasts_s)


def pause_words(until: datetime | None, why: str, *, of_watch: bool, times: TimeWords) -> str:
    """ "you paused it until Mon 08:00: “budget”"."""
    if of_watch:
        text = _("you paused it until {time}") if until else _("you paused it")
    else:
        text = _("you paused renting until {time}") if until else _("you paused renting")
    said = text.format(time=times.at(until))
    return _("{sentence}: “{why}”").format(sentence=said, why=why) if why else said


def _paused(check: RuleCheck, times: TimeWords) -> str:
    return pause_words(check.until, check.why, of_watch=check.of_watch, times=times)


def _breaker(check: RuleCheck, times: TimeWords) -> str:
    return _("several launches in a row failed; it tries once more at {time}").format(time=times.at(check.until))


def _checklist(check: RuleCheck, _times: TimeWords) -> str:
    left = (check.limit or 0) - check.used
    text = translate_plural(
        "{left} of {limit} items of its checklist is not ticked",
        "{left} of {limit} items of its checklist are not ticked",
        left,
    )
    return text.format(left=left, limit=check.limit)


_WITH_FIGURES: Mapping[RefusalReason, Callable[[RuleCheck, TimeWords], str]] = {
    RefusalReason.MAX_ACTIVE: _active,
    RefusalReason.MAX_TOTAL: _total,
    RefusalReason.MAX_PER_DAY: _per_day,
    RefusalReason.MAX_INSTANCES: _instances,
    RefusalReason.MAX_USD_HOUR: _hourly,
    RefusalReason.MAX_USD_DAY: _amount,
    RefusalReason.MAX_USD_MONTH: _amount,
    RefusalReason.PAUSED: _paused,
    RefusalReason.BREAKER: _breaker,
    RefusalReason.CHECKLIST: _checklist,
}
