"""The owner's texts: `[notify.CHANNEL.templates] match = "$headline …"`, filled in with an alert's values. Pure.

A template is a `string.Template`: it names values and computes nothing. If it names an unknown value or is malformed,
the built-in text is sent instead, and `template_errors` gives the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from string import Template

from gpuwatch.domain.setup.durations import plain_json
from gpuwatch.notifiers.toolkit.layout import Line, Piece, Role, as_text, cleaned, lines, plain
from gpuwatch.ports import Alert, AlertKind
from gpuwatch.ports.declarations import OptionSpec

MAX_TEMPLATE = 4_000  # characters
GENERAL_NAMES = (
    "headline",
    "kind",
    "severity",
    "subject",
    "watch",
    "why",
    "did",
    "can_do",
    "facts",
    "text",
    "id",
)
FACT_NAMES = (
    *("gpu", "price", "rank", "listed", "total", "rental", "threshold", "quote", "at_most", "place", "machine"),
    *("network", "cuda", "reliability", "available", "offer", "kind_of_price", "sold_by", "elsewhere", "processor"),
    *("terms", "note", "traffic", "traffic_unknown", "job", "hours", "not_in_it", "seen", "provider", "launch"),
    *("instance", "label"),
    *("state", "cost", "cost_so_far", "since", "last_error", "channel", "answer", "not_delivered_here"),
)
_NAMES = frozenset((*GENERAL_NAMES, *FACT_NAMES))
_KINDS = tuple(kind.value for kind in AlertKind)
_RENAMED = {"kind": "kind_of_price"}  # a fact of offers that are not live; `$kind` is already the kind of the alert


def _parse(value: object) -> dict[str, str]:
    if isinstance(value, str):  # a table from the environment
        value = plain_json(value)
    if not isinstance(value, dict):
        raise ValueError('expected a table of texts by alert kind, such as match = "$headline"')  # noqa: TRY004
    for kind, text in value.items():
        if kind not in _KINDS:
            raise ValueError(f"unknown alert kind {kind!r}; expected one of {', '.join(_KINDS)}")
        if not isinstance(text, str) or not text.strip() or len(text) > MAX_TEMPLATE:
            raise ValueError(f"{kind}: expected a text of at most {MAX_TEMPLATE} characters")
    return dict(value)


TEMPLATES = OptionSpec(
    name="templates",
    kind="templates",
    about="Custom texts by alert kind, instead of the built-in ones.",
    parse=_parse,
)


def template_errors(templates: Mapping[str, str] | None) -> Iterator[tuple[str, str]]:
    """Return the kind and the fault of each unusable template."""
    for kind, text in (templates or {}).items():
        if fault := _fault(text):
            yield kind, fault


def text_of(templates: Mapping[str, str] | None, alert: Alert) -> str:
    """Return the alert as plain text: the owner's, else the built-in one."""
    return custom_text(templates, alert, plain) or as_text(alert)


def custom_text(templates: Mapping[str, str] | None, alert: Alert, render: Callable[[Line], str]) -> str | None:
    """Return the owner's text for an alert; None: none for its kind, a faulty one, or an alert with several parts.

    Args:
        render: renders a line in the channel's markup, with everything escaped.
    """
    text = (templates or {}).get(alert.kind)
    if text is None or alert.parts or _fault(text):
        return None
    return Template(text.strip("\n")).substitute(dict.fromkeys(_NAMES, "") | _values(alert, render))


def _fault(text: str) -> str | None:
    template = Template(text)
    if not template.is_valid():
        return "a single $; write $$ for a dollar sign"
    unknown = sorted(set(template.get_identifiers()) - _NAMES)
    return f"unknown variable ${unknown[0]}" if unknown else None


def _values(alert: Alert, render: Callable[[Line], str]) -> dict[str, str]:
    def escaped(value: str) -> str:
        return render(Line(Role.ITEM, (Piece(cleaned(value)),)))

    facts = {_name(label): escaped(value) for label, value in alert.facts}
    all_lines = lines(alert)
    return facts | {
        "headline": escaped(alert.headline),
        "kind": escaped(alert.kind.value),
        "severity": escaped(alert.severity.value),
        "subject": escaped(alert.subject),
        "watch": escaped(alert.watch or ""),
        "why": escaped(alert.why),
        "did": escaped(alert.did),
        "can_do": "\n".join(map(escaped, alert.can_do)),
        "facts": "\n".join(escaped(f"{label}: {value}") for label, value in alert.facts),
        "text": "\n".join(map(render, all_lines)),
        "id": escaped(alert.alert_id),
    }


def _name(label: str) -> str:
    """Convert "Cost so far" to `cost_so_far`."""
    name = re.sub(r"[^a-z0-9]+", "_", label.lower()).strip("_")
    return _RENAMED.get(name, name)
