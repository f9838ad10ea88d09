"""Every setting as one row, from the schema: for the documentation, `.env.example` and `config show`."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import msgspec
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from gpuwatch import notifiers, providers
from gpuwatch.domain.setup.durations import format_duration
from gpuwatch.domain.watches.watch_schema import WatchTable
from gpuwatch.ports.declarations import OptionSpec
from gpuwatch.ports.settings import Option
from gpuwatch.settings.plugin_options import NOTIFY_OPTIONS, KeyPath, options_of, variable_of
from gpuwatch.settings.settings_schema import ProviderTable, SettingsTables

# of providers, of the registry of a launch, of the watchdog, of the web page
_SECRETS = ("api_key", "previous_api_key", "password", "heartbeat_url", "password_hash", "tokens")


class SettingRow(msgspec.Struct, frozen=True, kw_only=True):
    """One setting. `default` as written in the file; empty: not set."""

    path: KeyPath
    default: str
    text: str
    needed: bool = False  # within its table
    secret: bool = False

    @property
    def key(self) -> str:
        """`providers.vastai.base_url`."""
        return ".".join(self.path)

    @property
    def variable(self) -> str:
        """Its environment variable."""
        return variable_of(self.path)


def setting_rows() -> list[SettingRow]:
    """All settings except those of a watch, with every installed provider and channel."""
    rows = list(_rows(SettingsTables, (), ("providers", "notify", "watch")))
    rows += _declared_rows(("notify",), NOTIFY_OPTIONS)
    for name in notifiers.names():
        rows += _declared_rows(("notify", name), options_of(notifiers.info(name)))
    for name in providers.names():
        rows += _provider_rows(name)
    return rows


def watch_rows() -> list[SettingRow]:
    """The settings of one `[[watch]]`, its launch included."""
    return list(_rows(WatchTable, ("watch",), ()))


def table_model(field: FieldInfo) -> type[BaseModel] | None:
    """The table of a field, if the field can be nothing else."""
    models = [kind for kind in _union_parts(field.annotation) if isinstance(kind, type) and issubclass(kind, BaseModel)]
    return (
        models[0]
        if models and models[0].__name__ not in {"CommissionTable", "GpuCount", "HookTable", "TokenTable"}
        else None
    )


def toml_text(value: Any) -> str:
    """A default as a file spells it."""
    if value is None or value in ((), {}):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f'"{format_duration(value)}"'
    if isinstance(value, (int, Decimal)):
        return str(value)
    if isinstance(value, tuple):
        return "[" + ", ".join(f'"{one}"' for one in value) + "]"
    if isinstance(value, BaseModel):
        parts = value.model_dump()
        return str(parts["min"]) if "min" in parts else str(parts)
    return f'"{value}"'


def _rows(model: type[BaseModel], path: KeyPath, excluded: tuple[str, ...]) -> Iterator[SettingRow]:
    for name, field in model.model_fields.items():
        if name in excluded:
            continue
        inner = table_model(field)
        if inner is not None:
            yield from _rows(inner, (*path, name), ())
        else:
            default = "" if field.is_required() else toml_text(field.get_default(call_default_factory=True))
            own_path = (*path, name)
            yield SettingRow(
                path=own_path,
                default=default,
                text=field.description or "",
                needed=field.is_required(),
                secret=name in _SECRETS,
            )


def _provider_rows(name: str) -> Iterator[SettingRow]:
    defaults = provider_defaults(name)
    for row in _rows(ProviderTable, ("providers", name), ("options",)):
        yield msgspec.structs.replace(row, default=defaults.get(row.path[-1], row.default))
    yield from _declared_rows(("providers", name, "options"), providers.info(name).options)


def _declared_rows(table: KeyPath, specs: tuple[OptionSpec, ...]) -> Iterator[SettingRow]:
    for spec in specs:
        default = "" if spec.default is None else _option_text(spec.default)
        path = (*table, spec.name)
        yield SettingRow(path=path, default=default, text=spec.about, needed=spec.needed, secret=spec.secret)


def _option_text(value: Option) -> str:
    """An option's default as a file spells it: numbers are not durations here."""
    if isinstance(value, tuple):
        return "[" + ", ".join(f'"{one}"' for one in value) + "]"
    return f"{value:g}" if isinstance(value, float) else toml_text(value)


def provider_defaults(name: str) -> dict[str, str]:
    """A provider's declaration as a file spells it."""
    info = providers.info(name)
    rate, mode = info.commission.rate_text, info.commission.mode.value
    return {
        "enabled": str(info.on_by_default).lower(),
        "base_url": f'"{info.base_url}"',
        "poll_every": toml_text(info.poll_every_s),
        "min_billing": toml_text(info.billing.minimum_s),
        "commission": rate if mode == "on_top" else f'{{ rate = {rate}, mode = "{mode}" }}',
        "search_interval": f'"{format_duration(info.search_interval_s)}"',
        "rows_per_day": str(info.rows_per_day),
    }


def _union_parts(annotation: Any) -> list[Any]:
    inner_types = getattr(annotation, "__args__", ())
    return (
        [annotation] if not inner_types else [part for inner_type in inner_types for part in _union_parts(inner_type)]
    )
