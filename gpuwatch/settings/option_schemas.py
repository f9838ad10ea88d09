"""The keys that a provider's adapter or a plugin's channel declares for itself, and which of them are secret."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuwatch import notifiers, providers
from gpuwatch.ports.declarations import OptionSpec
from gpuwatch.ports.settings import Option
from gpuwatch.settings.option_values import read_option
from gpuwatch.settings.sources import KeyPath


def option_schemas() -> dict[KeyPath, OptionSpec]:
    """Every such key: `[providers.NAME.options]` and, of plugins, `[notify.NAME]`."""
    tables: dict[KeyPath, tuple[OptionSpec, ...]] = {
        **{("providers", name, "options"): providers.info(name).options for name in providers.names()},
        **{("notify", name): notifiers.info(name).options for name in notifiers.plugins()},
    }
    return {(*table, spec.name): spec for table, specs in tables.items() for spec in specs}


def secret_keys() -> frozenset[KeyPath]:
    """Those that hold secrets."""
    return frozenset(path for path, spec in option_schemas().items() if spec.secret)


def secrets_of(tree: Mapping[str, Any]) -> dict[KeyPath, Option]:
    """The declared secrets that are set in judged tables."""
    found = {}
    for path, spec in option_schemas().items():
        value = _at(tree, path) if spec.secret else None
        if value is not None:
            found[path] = read_option(spec, value)
    return found


def secret_values(settings_of: Mapping[str, Any], section: str) -> list[str]:
    """The texts of secret options in finished settings, for redaction.

    Args:
        settings_of: name → settings with `options`.
        section: "providers" or "notify".
    """
    found: list[str] = []
    for path in secret_keys():
        one = settings_of.get(path[1]) if path[0] == section else None
        value = one.options.get(path[-1]) if one is not None else None
        found += [str(part) for part in (value if isinstance(value, tuple) else (value,)) if part is not None]
    return found


def _at(tree: Any, path: KeyPath) -> Any:
    for part in path:
        tree = tree.get(part) if isinstance(tree, dict) else None
    return tree
