"""Warnings about valid settings: readable secrets, secrets over plain http, implausible prices and commissions."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterator, Mapping
from decimal import Decimal

from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.domain.watches.watch import HookSpec, LaunchSpec, Prefer
from gpuwatch.secret import IN_SETTINGS
from gpuwatch.settings.duration_warnings import duration_warnings
from gpuwatch.settings.external_values import ExternalValue
from gpuwatch.settings.interpolation import HOOKS, ResolvedSettings
from gpuwatch.settings.launch_warnings import launch_warnings
from gpuwatch.settings.model import Settings
from gpuwatch.settings.plugin_options import KeyPath, option_specs_of
from gpuwatch.settings.secrets import account_secrets, has_secret_name, launch_secrets
from gpuwatch.settings.sources import Sources, has_secret, is_external

# The highest list prices are below this: 0.21 at Azure for a V100 (source: tests/recorded, 2026-11).
_PLAUSIBLE_USD_GIB_HOUR = Decimal("0.25")
_PLAUSIBLE_USD_HOUR = Decimal(5)  # for small and unknown cards
_URL_WITHOUT_LOGIN = re.compile(r"https?://[^@]*")


def log_warnings(
    settings: Settings,
    sources: Sources,
    origins: Mapping[KeyPath, ExternalValue],
    resolved: ResolvedSettings,
    *,
    all_warnings: bool = True,
) -> None:
    """Log the warnings: a command, which prints them, each once a day; a daemon, which has a log, all of them.

    Args:
        origins: the keys that the file does not set.
        resolved: the values of launch references.
        all_warnings: print those of today again.
    """
    files = {one.file for one in sources.external if one.file and has_secret(one.path, one.text)} | set(resolved.files)
    if sources.file and _file_has_secrets(settings, origins):
        files.add(str(sources.file))
    warnings = [
        *_open_files(files),
        *_plain_http(settings),
        *_broken_templates(settings),
        *_high_commissions(settings),
        *_several_cards(settings),
        *_unlisted_cards(settings),
        *_high_prices(settings),
        *_choices_without_effect(settings),
        *launch_warnings(settings),
        *duration_warnings(settings),
    ]
    if warnings:
        import logging  # noqa: PLC0415 - not needed without warnings

        log = logging.getLogger("gpuwatch.settings")
        if not all_warnings and not log.hasHandlers():
            from gpuwatch.settings.daily_warnings import due_today  # noqa: PLC0415

            warnings = due_today(warnings, sources.env)
        for text in warnings:
            log.warning("%s", text)


def _file_has_secrets(settings: Settings, origins: Mapping[KeyPath, ExternalValue]) -> bool:
    """Does the settings file contain a secret?"""
    if any(secret.origin == IN_SETTINGS for secret in account_secrets(settings)):
        return True
    if "@" in settings.database_url and not is_external(("database_url",), origins):
        return True
    launches = [watch.launch for watch in settings.watches if watch.launch and not is_external(("watch",), origins)]
    return any(
        any(map(has_secret_name, launch.env))
        or any(
            secret.origin == IN_SETTINGS and not _URL_WITHOUT_LOGIN.fullmatch(secret.reveal())
            for secret in launch_secrets(launch)
        )
        for launch in launches
    )


def _open_files(files: Collection[str]) -> Iterator[str]:
    for file in sorted(files):
        try:
            is_open = os.stat(file).st_mode & stat.S_IROTH
        except OSError:
            continue
        if is_open:
            yield f"{file}: every user of this machine can read its secrets; run: chmod 600 {file}"


def _plain_http(settings: Settings) -> Iterator[str]:
    addresses = [
        (f"providers.{name}.base_url", provider.base_url)
        for name, provider in settings.providers.items()
        if provider.api_key
    ]
    for name, channel in settings.channels.items():
        table = ("notify", name)
        if channel.secrets:
            urls = [spec.name for spec in option_specs_of(table) if spec.is_url]
            secrets = {key: secret.reveal() for key, secret in channel.secrets.items() if key in urls}
            addresses += [(f"notify.{name}.{key}", secrets.get(key) or str(channel.options.get(key))) for key in urls]
    for key, url in addresses:
        if url.startswith("http://") and not _is_loopback(url):
            yield f"{key}: the secret is sent unencrypted; use https://"
    for watch in settings.watches:
        launch = watch.launch or LaunchSpec()
        for name in HOOKS:
            hook: HookSpec | None = getattr(launch, name)
            url = hook.url.reveal() if hook and hook.url else ""
            if url.startswith("http://") and not _is_loopback(url):
                yield f'watch "{watch.name}": launch.{name}.url: data is sent unencrypted; use https://'


def _broken_templates(settings: Settings) -> Iterator[str]:
    by_channel = {name: channel.options.get("templates") for name, channel in settings.channels.items()}
    if not any(by_channel.values()):
        return
    from gpuwatch.notifiers.toolkit import template_errors  # noqa: PLC0415 - most starts do not need it

    for name, templates in by_channel.items():
        for kind, fault in template_errors(templates if isinstance(templates, dict) else None):
            yield f"notify.{name}.templates.{kind}: {fault}; the built-in text is used"


def _high_commissions(settings: Settings) -> Iterator[str]:
    """Warn about a percentage instead of a fraction: `commission = 5`."""
    for name, provider in settings.providers.items():
        rate = Decimal(provider.commission.rate_text)
        if rate >= 1:
            percent = f"{rate / 100:f}".rstrip("0")
            yield f"providers.{name}.commission = {rate} adds {rate * 100:f} % to every price; {rate} % is {percent}"


def _high_prices(settings: Settings) -> Iterator[str]:
    """Warn about the price of a whole machine, or a typo, instead of the price of one GPU: `max_price = 350`."""
    for watch in settings.watches:
        if watch.max_job_cost_usd is not None or watch.unlimited:
            continue
        memory_gib = max((gpu.memory_gib for name in watch.gpu_names if (gpu := catalog().get(name))), default=0)
        plausible = max(Decimal(repr(memory_gib)) * _PLAUSIBLE_USD_GIB_HOUR, _PLAUSIBLE_USD_HOUR)
        if watch.max_price_usd_gpu_hour > plausible:
            key = "max_price" if watch.auto is None else "max_price_cap"
            yield (
                f'watch "{watch.name}": {key} = {watch.max_price_usd_gpu_hour} is per GPU and hour, '
                f"where no provider charges more than about {plausible:.0f} USD; is it the price of a whole machine?"
            )


def _several_cards(settings: Settings) -> Iterator[str]:
    """Warn about names of cards of several families with very different prices: "RTX 6000"."""
    for watch in settings.watches:
        for text in watch.gpu:
            cards = [gpu for name in catalog().wanted(text) if (gpu := catalog().get(name)) and not gpu.members]
            families = list(dict.fromkeys(gpu.family for gpu in cards))
            if len(families) > 1:
                yield f'watch "{watch.name}": gpu {text!r} is ambiguous: write {" or ".join(families)}'


def _unlisted_cards(settings: Settings) -> Iterator[str]:
    """Warn about names that the catalogue lacks: a card that is new, or a slip."""
    texts = {text: f'watch "{watch.name}": gpu' for watch in settings.watches for text in watch.gpu}
    for text, key in texts.items():
        if names := catalog().unlisted(text):
            near = " or ".join(catalog().suggest(text))
            hint = f"; did you mean {near}?" if near else ""
            yield f"{key} {text!r} is not in the catalogue: offers match that providers call {names[0]!r}{hint}"


def _choices_without_effect(settings: Settings) -> Iterator[str]:
    """Warn that other price settings have no effect if the cost of the whole job is limited."""
    for watch in settings.watches:
        if watch.max_job_cost_usd is None:
            continue
        choices = {"prefer": watch.prefer is not Prefer.CHEAPEST_GPU, "tie": watch.tie is not None}
        for key in (key for key, is_set in choices.items() if is_set):
            yield (
                f'watch "{watch.name}": {key} has no effect with max_job_cost, which limits the cost of the whole job; '
                "remove it"
            )


def _is_loopback(url: str) -> bool:
    from ipaddress import ip_address  # noqa: PLC0415 - plain http is rare
    from urllib.parse import urlsplit  # noqa: PLC0415

    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
