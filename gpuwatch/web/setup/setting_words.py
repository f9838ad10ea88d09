"""The names and values of settings in words, for the page Settings. Commands and the API keep the keys."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from gpuwatch import notifiers, providers
from gpuwatch.app.reader_text import percent, setting_span
from gpuwatch.domain.market.money import amount_text
from gpuwatch.language import mark_text
from gpuwatch.language import translate as _

_GROUPED = {
    "dry_run": "renting",
    "budget": "renting",
    "launch": "renting",
    "mcp": "renting",
    "orchestrator": "renting",
    "providers": "providers",
    "notify": "alerts",
    "watchdog": "alerts",
    "record": "recording",
    "history": "recording",
    "database_url": "recording",
    "web": "access",
    "language": "access",
}
_LAST = "else"
_WORDS = {  # of a value that is a word of the file
    "action": {
        "alert": mark_text("Alerts only"), "ask": mark_text("Asks you first"), "launch": mark_text("Rents by itself"),
        "command": mark_text("Runs a command"),
    },
    "spot": {
        "no": mark_text("On demand"), "only": mark_text("Spot"), "any": mark_text("Both"),
        "first": mark_text("Spot first"),
    },
    "language": {"auto": mark_text("as the browser asks"), "en": "English", "ru": "Русский"},
    "max_total": {"0": mark_text("any number")},
}  # fmt: skip
_DOLLARS = frozenset({"max_price", "max_price_cap", "max_job_cost"})


def group_names() -> dict[str, str]:
    """The groups in their order."""
    return {
        "renting": _("Renting and budgets"),
        "providers": _("Providers"),
        "alerts": _("Alerts and channels"),
        "recording": _("Recording"),
        "access": _("Page and access"),
        _LAST: _("Everything else"),
    }


def group_of(key: str) -> str:
    """The group of a key: a watch is one of its own, with its heading."""
    if (watch := _watch_of(key)) is not None:
        return _("Watch {name}").format(name=watch)
    return _GROUPED.get(key.partition(".")[0], _LAST)


def setting_name(key: str) -> str:
    """What a setting is, in words: what it belongs to first."""
    words = _names()
    if key in words:
        return words[key]
    head, _dot, last = key.rpartition(".")
    owner = _owner(head)
    name = words.get(last) or last.replace("_", " ").capitalize()
    return f"{owner}: {name}" if owner else name


def value_text(key: str, value: Any) -> str:
    """A value in words; "–": not set."""
    if value is None or value in ("", [], {}, ()):
        return "–"
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    last = key.rpartition(".")[2]
    if (word := _WORDS.get(last, {}).get(str(value))) is not None:
        return _(word)
    if last == "commission" and isinstance(value, (int, float, Decimal)):
        return percent(float(value))
    if ("usd" in last or last in _DOLLARS) and isinstance(value, (int, float, Decimal)):
        return f"${amount_text(Decimal(str(value)))}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {value_text(name, part)}" for name, part in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(value_text("", part) for part in value)
    return setting_span(str(value))


def origin_word(origin: str) -> str:
    """Where a value comes from."""
    words = {"default": _("default"), "file": _("in the file")}
    return words.get(origin, origin)


def _watch_of(key: str) -> str | None:
    return key.partition('"')[2].rpartition('"')[0] if key.startswith("watch ") else None


def _owner(head: str) -> str:
    """Whose setting it is: a provider or a channel; the heading of its group says which watch."""
    parts: Sequence[str] = head.split(".")
    if parts[0] == "providers" and len(parts) > 1 and parts[1] in providers.names():
        return providers.info(parts[1]).title
    if parts[0] == "notify" and len(parts) > 1 and parts[1] in notifiers.names():
        return notifiers.info(parts[1]).title
    return ""


def _names() -> dict[str, str]:
    return {
        "owner": _("Owner of this list"),
        "timezone": _("Time zone"),
        "language": _("Language"),
        "database_url": _("Database"),
        "dry_run": _("Dry run: rent nothing"),
        "budget.max_usd_hour": _("Hourly budget"),
        "budget.max_usd_day": _("Daily budget"),
        "budget.max_usd_month": _("Monthly budget"),
        "budget.max_instances": _("Machines at once"),
        "budget.on_reached": _("When a budget is reached"),
        "launch.watch_ended": _("Watch ended machines for"),
        "launch.gather": _("Wait for quotes of other providers"),
        "mcp.max_usd_day": _("Agents may spend a day"),
        "orchestrator.tool": _("Engine for several machines"),
        "orchestrator.program": _("Program of the engine"),
        "orchestrator.project": _("Project of the engine"),
        "orchestrator.timeout": _("Longest call of the engine"),
        "record.gpu": _("Also record these GPUs"),
        "history.keep.polls": _("Keep single polls for"),
        "history.keep.intervals": _("Keep exact prices for"),
        "history.keep.hourly": _("Keep hourly prices for"),
        "history.lake": _("Parquet files go to"),
        "watchdog.heartbeat_url": _("Address of the heartbeat"),
        "web.enabled": _("The daemon serves this page"),
        "web.listen": _("Listens at"),
        "web.password_hash": _("Password"),
        "web.tokens": _("Tokens of programs"),
        "web.trusted_hosts": _("Accepted host names"),
        "web.trusted_proxies": _("Trusted proxies"),
        "web.probe_listen": _("Probes ask at"),
        "web.public_url": _("Public address"),
        "web.tls_certificate": _("TLS certificate"),
        "web.tls_key": _("TLS key"),
        "notify.quiet_hours": _("Quiet hours"),
        # the last part of a key, of any provider, channel or watch
        "enabled": _("In use"),
        "api_key": _("Key"),
        "previous_api_key": _("Former key"),
        "base_url": _("Address"),
        "commission": _("Commission"),
        "min_billing": _("Shortest billed time"),
        "poll_every": _("Polled every"),
        "sweep_every": _("Whole market every"),
        "search_interval": _("Between two requests"),
        "rows_per_day": _("Rows a day"),
        "timeout": _("Longest request"),
        "image": _("Image"),
        "ssh_key": _("SSH key"),
        "regions": _("Regions"),
        "min_severity": _("Loud from"),
        "templates": _("Own texts"),
        "bot_token": _("Token of the bot"),
        "chat_id": _("Chat"),
        "users": _("Who may press buttons"),
        "gpu": _("GPUs"),
        "gpu_count": _("GPUs per offer"),
        "max_price": _("Limit per GPU-hour"),
        "action": _("What happens"),
        "active": _("Hours"),
        "max_runtime": _("Longest runtime"),
        "max_active": _("Machines at once"),
        "max_total": _("Machines in all"),
        "approve_within": _("Time to approve"),
        "disk_gb": _("Disk, GB"),
        "spot": _("Rental"),
    }
