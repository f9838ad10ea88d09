"""What gpuwatch can do at each provider according to the settings: search, rent, or neither. Sends no request."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING

from gpuwatch import providers
from gpuwatch.domain.market.offer import OfferKind
from gpuwatch.domain.watches.watch import Action, Watch
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.engine.launches.renting.launch_orders import UnavailableProviders
    from gpuwatch.ports import ProviderSection
    from gpuwatch.ports.http import HttpClient
    from gpuwatch.settings import Settings


def has_credentials(provider: ProviderSection) -> bool:
    """Whether there is a key, or the provider finds credentials by itself."""
    return provider.api_key is not None or providers.info(provider.name).own_credentials is not None


def can_rent(provider: ProviderSection) -> bool:
    """Whether gpuwatch may rent there, as far as is known without a request."""
    return providers.info(provider.name).launches and has_credentials(provider)


def providers_with_key(settings: Settings) -> frozenset[str]:
    """The providers with an account to query."""
    return frozenset(name for name, provider in settings.providers.items() if has_credentials(provider))


def providers_to_follow(settings: Settings, http: HttpClient, names: Iterable[str]) -> frozenset[str]:
    """Of these providers, those whose launches gpuwatch can manage: configured, with a key and a launcher.

    A key alone is not enough: a plugin may fail to load, an extra may be missing, an option may allow only prices.
    """
    from gpuwatch.bootstrap import build_adapters, missing_extra_hint

    names = tuple(names)
    with_key = [
        name for name in sorted(providers_with_key(settings).intersection(names)) if missing_extra_hint(name) is None
    ]
    rentable = {
        name for name, adapter in build_adapters(settings, http, with_key).items() if adapter.launcher is not None
    }
    return frozenset({*rentable, *({settings.orchestrator.tool} & set(names))})


def not_rentable(settings: Settings) -> UnavailableProviders:
    """The providers where gpuwatch cannot rent, by reason."""
    from gpuwatch.engine.launches.renting.launch_orders import UnavailableProviders

    no_launcher = frozenset(name for name in settings.providers if not providers.info(name).launches)
    return UnavailableProviders(
        no_launcher=no_launcher, no_key=frozenset(settings.providers) - providers_with_key(settings) - no_launcher
    )


def is_polled_for(name: str, watch: Watch) -> bool:
    """Whether a provider is polled for a watch. One with list prices only is not, if only live prices count."""
    if watch.providers is not None and name not in watch.providers:
        return False
    if watch.handover is not None:
        from gpuwatch.domain.watches.orchestrator_task import names_at

        if not names_at(name).get(watch.handover.to):
            return False  # the tool does not rent there
    if watch.action is Action.ALERT and watch.listed:
        return True
    info = providers.info(name)
    return OfferKind.LIVE in info.kinds and (info.runs_onstart or watch.purpose.job is None)


def providers_polled_for(watch: Watch, names: Iterable[str]) -> list[str]:
    """Those of these providers that are polled for a watch."""
    return [name for name in names if is_polled_for(name, watch)]


@cache
def missing_extra(name: str) -> str | None:
    """The gpuwatch extra that a provider requires and that is not installed; None: nothing is missing."""
    extra = providers.info(name).extra
    return None if extra is None or has_extra(extra) else extra


def has_extra(extra: str) -> bool:
    """Whether the packages of an extra of gpuwatch are installed."""
    return all(_is_installed(package) for package in _packages(extra))


def _packages(extra: str) -> list[str]:
    """Packages of an extra, from gpuwatch's own metadata."""
    from gpuwatch.installation import installation  # it takes 40 ms, and few providers have an extra

    distribution = installation().distribution
    lines = (distribution.requires or []) if distribution is not None else []  # None: a copy without installation
    extra_marker = re.compile(rf"""extra\s*==\s*["']{re.escape(extra)}["']""")
    matches = [_PACKAGE.match(line) for line in lines if extra_marker.search(line)]
    return [match[0] for match in matches if match]


def _is_installed(package: str) -> bool:
    from importlib import metadata

    try:
        metadata.distribution(package)
    except metadata.PackageNotFoundError:
        return False
    return True


_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def resolve_provider(settings: Settings, name: str | None) -> str:
    """The named provider, or the only enabled one."""
    if name is not None and name in settings.providers:
        return name
    if name is not None:
        raise not_enabled_error(settings, name)
    if len(settings.providers) != 1:
        raise UsageError(f"several providers are enabled; add --provider NAME ({_enabled(settings)})")
    return next(iter(settings.providers))


def not_enabled_error(settings: Settings, name: str) -> UsageError:
    """The error for a provider that is not enabled, or that there is not."""
    if name in providers.names():
        return UsageError(
            f"provider {name!r} is not enabled: set enabled = true in [providers.{name}]; enabled: {_enabled(settings)}"
        )
    return UsageError(f"there is no provider {name!r}; enabled: {_enabled(settings)}; all: gpuwatch providers")


def _enabled(settings: Settings) -> str:
    return ", ".join(settings.providers) or "none"


def label_lengths(names: Collection[str]) -> Mapping[str, int]:
    """Provider → the length of a label there."""
    return {name: providers.info(name).label_length for name in names}
