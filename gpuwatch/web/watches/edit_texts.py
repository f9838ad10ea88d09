"""Words of a watch's form: what the folds hold, what an action does, what saving means."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

from markupsafe import Markup

from gpuwatch.app.reader_text import setting_span
from gpuwatch.app.watches.why.watch_words import count_range
from gpuwatch.domain.launches.money.budgets import DAY
from gpuwatch.domain.market.money import dollars, microusd, unit_hourly_text
from gpuwatch.domain.market.offer import priced_units
from gpuwatch.domain.watches.watch import Action
from gpuwatch.language import mark_text, translate_plural
from gpuwatch.language import translate as _
from gpuwatch.web.components import code, hardware, replaced
from gpuwatch.web.page import Confirm
from gpuwatch.web.watches.edit_fields import FIELD_OF, FOLDS

if TYPE_CHECKING:
    from gpuwatch.app.watches.edit_watch import WatchField
    from gpuwatch.domain.watches.watch import Watch
    from gpuwatch.settings import Settings

# What the settings say of a wrong value, for `translate_composed`: the form shows it at its field.
FIELD_FAULTS = (
    mark_text("expected a number"),
    mark_text("expected a number above {least}"),
    mark_text("expected a number below {most}"),
    mark_text("expected {names} or {other}"),
    mark_text("did you mean {near}?"),
    mark_text("`gpuwatch plan models` lists more"),
    mark_text("expected a number of at least {least}"),
    mark_text("expected a number of at most {most}"),
    mark_text("expected a duration such as 90s, 15m, 6h, 2d or 1h30m"),
    mark_text("expected one non-empty line of text"),
    mark_text("expected a unique name; another watch uses it"),
    mark_text('expected a window such as "22:00-08:00", "Mon-Fri 09:00-18:00" or "Sat-Sun"'),
    mark_text('expected a window in quotes, such as "22:00-08:00"'),
    mark_text("expected both idle_below and idle_for"),
    mark_text("unknown GPU {name}; did you mean {near}?"),
    mark_text("no country, group or provider's region is called {name}; did you mean {near}?"),
)
# what a help text names of the file: a list or table, a text, a key, a command
_CODE = re.compile(
    r"\[[^\]]*\]|\{[^}]*\}|\"[^\"]*\"|`[^`]*`|\b[a-z]+(?:_[a-z0-9]+)+\b|\b[a-z]+(?= = )|gpuwatch(?: [a-z]+)+"
)
_DAY_H = DAY.total_seconds() / 3600


def actions(texts: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """What a watch can do with an offer: value, name, what it means. A command can be set only in the file."""
    within = texts.get("launch.approve_within", "15m")
    choices = [
        (Action.ALERT.value, _("Alert me"), _("Rents nothing.")),
        (Action.ASK.value, _("Ask me"), _("Rents what you approve within {time}.").format(time=setting_span(within))),
        (Action.LAUNCH.value, _("Rent by itself"), _("Within your budgets, without asking.")),
    ]
    if texts.get("action") == Action.COMMAND:
        choices.append((Action.COMMAND.value, _("Run the command"), _("The one in the settings file.")))
    return choices


def fold_summary(name: str, texts: Mapping[str, str], defaults: Mapping[str, str]) -> str:
    """What the fields of a fold hold, in words."""
    fold = next(fold for fold in FOLDS if fold.name == name)
    shown = {field.key: next(iter(field.shown(texts).values())) for field in fold.fields}
    parts = {"offers": _offers, "when": _when, "machine": _machine, "limits": _limits}[name](shown, defaults)
    return ", ".join(filter(None, parts))


def _offers(shown: Mapping[str, str], _defaults: Mapping[str, str]) -> list[str]:
    rental = {"only": _("spot"), "any": _("on demand and spot"), "first": _("spot first")}.get(
        shown["spot"], _("on demand")
    )
    reliable = shown["min_reliability"]
    return [
        rental,
        _("verified") if shown["verified"] else "",
        _("at least {percent} reliable").format(percent=f"{reliable} %") if reliable else "",
        _("{size} GB disk").format(size=shown["disk_gb"]) if shown["disk_gb"] else "",
        shown["regions"] or _("anywhere"),
    ]


def _when(shown: Mapping[str, str], defaults: Mapping[str, str]) -> list[str]:
    every = shown["repeat_every"] or defaults["repeat_every"]
    reminder = _("no reminder") if every == "never" else _("reminder every {time}").format(time=setting_span(every))
    return [shown["active"] or _("always"), reminder]


def _machine(shown: Mapping[str, str], defaults: Mapping[str, str]) -> list[str]:
    lines = len(shown["launch.onstart"].splitlines())
    script = translate_plural("start script of {count} line", "start script of {count} lines", lines)
    return [shown["launch.image"] or defaults["launch.image"], script.format(count=lines) if lines else ""]


def _limits(shown: Mapping[str, str], defaults: Mapping[str, str]) -> list[str]:
    active = shown["launch.max_active"] or defaults["launch.max_active"]
    total = shown["launch.max_total"] or defaults["launch.max_total"]
    idle = shown["launch.idle_below"]
    return [
        _("{count} at a time").format(count=active),
        _("any number in total") if total == "0" else _("{count} in total").format(count=total),
        _("ends under {percent} GPU use").format(percent=f"{idle} %") if idle else "",
    ]


def other_label(key: str) -> str:
    """The name of a setting without a label of its own: "Launch: try for"."""
    text = key.replace(".", ": ").replace("_", " ")
    return _(text[:1].upper() + text[1:])


def table_text(origin: str) -> str:
    """Where a value is set that a watch inherits: "group night" or "the defaults"."""
    group = origin.partition("group ")[2]
    return _("group {group}").format(group=group) if group else _("the defaults")


def inherited_text(origin: str) -> str:
    """What stands at a field whose value is inherited."""
    return _("From {table}; a change here is for this watch alone.").format(table=table_text(origin))


def setting_help(field: WatchField) -> Markup:
    """What a setting without a field of its own does: other settings by their labels, what to type as code."""
    section = field.key.rpartition(".")[0]

    def shown(found: re.Match[str]) -> Markup:
        text = found[0].strip("`")
        key = next((one for one in (f"{section}.{text}", text, f"launch.{text}") if one in keys_of_form()), None)
        if key is None:
            return code(text.strip('"'))
        label = _(FIELD_OF[key].label) if key in FIELD_OF else other_label(key)
        return Markup.escape(_("“{label}”").format(label=label))

    return replaced(_(field.about), _CODE, shown)


@cache
def keys_of_form() -> frozenset[str]:
    from gpuwatch.settings.reference import watch_rows  # noqa: PLC0415 pydantic, only when the form is opened

    return frozenset(".".join(row.path[1:]) for row in watch_rows())


def by_editor_text(keys: Sequence[str]) -> str:
    """What is set in the file and can be changed only there: "hooks, environment"."""
    names = {
        "command": _("a command"),
        "handover": _("a handover"),
        "launch.env": _("environment"),
        "launch.onstart_file": _("a start script in a file"),
        "launch.ssh_key": _("an SSH key"),
        "launch.registry": _("a login at an image registry"),
    }
    found = (next((text for start, text in names.items() if key.startswith(start)), _("hooks")) for key in keys)
    return ", ".join(dict.fromkeys(found))


def question(watch: Watch, settings: Settings, back: str) -> Confirm:
    """What is asked before a watch that rents is saved: what it rents, most at once, most a day."""
    limit = (
        _("any price")
        if watch.unlimited
        else unit_hourly_text(microusd(watch.max_price_usd_gpu_hour), watch.gpu_count_max)
    )
    launch = watch.launch
    alive, total = (launch.max_active, launch.max_total) if launch else (1, 1)
    facts = [
        (_("Rents"), hardware(", ".join(watch.gpu), watch.gpu_count_max and count_range(watch))),
        (_("At or under"), limit),
        (_("At once, in total"), f"{alive}, {total or _('any number')}"),
    ]
    if not watch.unlimited and watch.max_job_cost_usd is None:
        hour = float(watch.max_price_usd_gpu_hour) * priced_units(watch.gpu_count_max) * alive
        hours = min(_DAY_H, (launch.max_runtime_s or _DAY_H * 3600) / 3600) if launch and total == alive else _DAY_H
        day = min(filter(None, (hour * hours, _usd(settings.budget.max_usd_day), _usd(watch.budget.max_usd_day))))
        most_hour = min(filter(None, (hour, _usd(settings.budget.max_usd_hour), _usd(watch.budget.max_usd_hour))))
        text = _("{hour}/h at once, {day} a day")
        facts.append((_("Most it can cost"), text.format(hour=dollars(most_hour), day=dollars(day))))
    asks = {
        Action.ASK: _("Save {watch}? It asks you before it rents."),
        Action.COMMAND: _("Save {watch}? Its command rents without asking."),
    }.get(watch.action, _("Save {watch}? It rents without asking."))
    return Confirm(question=asks.format(watch=watch.name), button=_("Save it"), back=back, facts=tuple(facts))


def _usd(amount: object) -> float | None:
    return None if amount is None else float(str(amount))


def translated(options: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The choices of a field in the reader's language."""
    return [(value, _(text)) for value, text in options]


def diff_rows(diff: str) -> list[tuple[str, str]]:
    """The lines of a unified diff without its head: sign, text."""
    lines = [line for line in diff.splitlines()[2:] if not line.startswith("@@")]
    return [(line[:1], line[1:]) for line in lines]
