"""Warnings about valid settings: readable secrets, limits that conflict, durations and prices that are implausible."""

from __future__ import annotations

import math
import os
import re
import stat
from collections.abc import Collection, Iterator, Mapping
from decimal import Decimal

from gpuwatch import providers
from gpuwatch.domain.launches.instance import CHANGING_EVERY_S, EXTRA_LENGTH, RUNNING_EVERY_S
from gpuwatch.domain.launches.money.launch_costs import END_PROVEN_S
from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.domain.market.offer import OfferKind, priced_units
from gpuwatch.domain.plan.job_hours import JobHours, hours_on
from gpuwatch.domain.setup.durations import HOUR_S, format_duration
from gpuwatch.domain.watches.launch_spec import Budget, EndPolicy, HookSpec, LaunchSpec
from gpuwatch.domain.watches.watch import Action, Prefer, SpotPolicy, Watch
from gpuwatch.secret import IN_SETTINGS
from gpuwatch.settings.external_values import ExternalValue, account_secrets, has_secret_name, launch_secrets
from gpuwatch.settings.interpolation import HOOKS, ResolvedSettings
from gpuwatch.settings.model import Settings
from gpuwatch.settings.plugin_options import KeyPath, option_specs_of
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


# --- launches: conflicting limits, thresholds in the wrong order ------------------------------------------------------


_BUDGET_HOURS = {"max_usd_hour": 1.0, "max_usd_day": 24.0, "max_usd_month": 31 * 24.0}  # longest period of each limit


def launch_warnings(settings: Settings) -> Iterator[str]:
    """One line per warning."""
    for watch in settings.watches:
        yield from (f'watch "{watch.name}": {text}' for text in _watch_warnings(settings, watch))


def _watch_warnings(settings: Settings, watch: Watch) -> Iterator[str]:
    rents = watch.action is not Action.ALERT
    if watch.launch is not None:
        yield from _threshold_warnings(watch, watch.launch)
        yield from _job_warnings(watch, watch.launch)
        yield from _label_warnings(watch.launch)
    yield from _spot_warnings(settings, watch)
    if watch.max_per_day is not None and not rents:
        yield 'max_per_day has no effect with action = "alert", which rents nothing'
    if rents:
        yield from _provider_warnings(settings, watch)
        yield from _host_warnings(settings, watch)
    if watch.launch is not None and rents:
        for section, budget in (("[budget]", settings.budget), ("[watch.budget]", watch.budget)):
            yield from _budget_warnings(watch, watch.launch, section, budget)


def _label_warnings(launch: LaunchSpec) -> Iterator[str]:
    if len(launch.label_extra or "") > EXTRA_LENGTH:
        yield f"launch.label_extra is longer than {EXTRA_LENGTH} characters: a label keeps only the first ones"


def _spot_warnings(settings: Settings, watch: Watch) -> Iterator[str]:
    """A provider without spot instances answers such a query with no offers, which looks like an empty market."""
    names = [name for name in watch.providers or settings.providers if name in settings.providers]
    without_spot = [name for name in names if True not in providers.info(name).spots]
    if watch.spot is SpotPolicy.ONLY and without_spot and (watch.providers is not None or without_spot == names):
        yield f'{" and ".join(without_spot)} offers no spot instances: with spot = "only" it finds nothing there'


def _provider_warnings(settings: Settings, watch: Watch) -> Iterator[str]:
    """Providers that cannot serve the watch, and those that ignore a part of its launch settings."""
    infos = [providers.info(name) for name in watch.providers or settings.providers if name in settings.providers]
    explicit = infos if watch.providers is not None else []
    only_listed = [info.name for info in explicit if OfferKind.LIVE not in info.kinds]
    not_rentable = [info.name for info in explicit if not info.launches and OfferKind.LIVE in info.kinds]
    runtype = watch.launch.runtype if watch.launch else ""
    machines = [info for info in infos if info.launches and not info.runs_image(runtype)]
    if only_listed:
        yield f"{' and '.join(only_listed)} offers list prices only: a watch that rents does not search there"
    if not_rentable:
        yield f"gpuwatch cannot rent at {' and '.join(not_rentable)}: it only reports matching offers there"
    spot = watch.spot is not SpotPolicy.NO
    has_volume = watch.launch is not None and watch.launch.volume is not None
    rentable = [info for info in infos if info.launches]
    keeps_none = {info.name: info.cannot_keep_disk(is_spot=spot, has_volume=has_volume) for info in rentable}
    reasons = "; ".join(f"{name}: {reason}" for name, reason in keeps_none.items() if reason)
    if watch.on_end is EndPolicy.STOP and reasons:
        yield f'on_end = "stop" destroys the machine all the same at {reasons}'
    onstart = {True: "and the machine itself runs launch.onstart", False: "and launch.onstart is refused"}
    for runs_onstart, consequence in onstart.items():
        if names := [info.name for info in machines if info.runs_onstart is runs_onstart]:
            yield f"{' and '.join(names)} rents out virtual machines: launch.image is ignored there, {consequence}"


def _host_warnings(settings: Settings, watch: Watch) -> Iterator[str]:
    """At some providers anybody can be a host; these conditions exclude the worst hosts."""
    missing = [] if watch.verified else ["verified = true"]
    missing += ["min_reliability = 0.95"] if watch.min_reliability is None else []
    names = [name for name in watch.providers or settings.providers if name in settings.providers]
    open_to_all = [name for name in names if providers.info(name).rates_hosts]
    if missing and open_to_all:
        yield f"it may rent from any host at {' and '.join(open_to_all)}; add {' and '.join(missing)}"


def _threshold_warnings(watch: Watch, launch: LaunchSpec) -> Iterator[str]:
    wasteful, idle = launch.wasteful_below, launch.idle_below
    if wasteful is not None and idle is not None and wasteful < idle:
        yield (
            f"launch.wasteful_below = {wasteful:g} is below idle_below = {idle:g}: "
            "an idle instance is stopped before the low-utilisation warning"
        )
    has_price_limit = watch.max_job_cost_usd is None
    if has_price_limit and launch.bid is not None and launch.bid.max_usd_gpu_hour > watch.max_price_usd_gpu_hour:
        yield (
            f"launch.bid.max = {launch.bid.max_usd_gpu_hour} is above max_price = {watch.max_price_usd_gpu_hour}: "
            "an instance may cost more than the offer that fired"
        )


def _job_warnings(watch: Watch, launch: LaunchSpec) -> Iterator[str]:
    """Warnings for watches that are limited by the cost of the whole job."""
    if watch.job is None:
        return
    counts = range(watch.gpu_count_min, watch.gpu_count_max + 1)
    estimates = [hours_on(watch.job, gpu, count) for gpu in watch.gpu_names for count in counts]
    durations = [hours.value for hours in estimates if isinstance(hours, JobHours)]
    if launch.max_runtime_s is None or not durations:
        return
    min_h, max_h = min(hours.low for hours in durations), max(hours.high for hours in durations)
    runtime = format_duration(launch.max_runtime_s)
    if launch.max_runtime_s < min_h * HOUR_S:
        yield (
            f"launch.max_runtime = {runtime} ends every instance before its job is done, "
            f"which takes at least {min_h:.1f} h"
        )
    elif launch.max_runtime_s < min(max_h * HOUR_S, watch.job.within_s or math.inf):
        yield (
            f"launch.max_runtime = {runtime} ends some instances before their job is done, which takes up to "
            f'{max_h:.1f} h; set job.within = "{runtime}" to exclude those'
        )


def _budget_warnings(watch: Watch, launch: LaunchSpec, section: str, budget: Budget) -> Iterator[str]:
    """A budget reserves the whole `max_runtime` of a launch, and until its end is proven, at its highest price."""
    is_bid = watch.spot is SpotPolicy.ONLY and launch.bid is not None
    per_gpu = launch.bid.max_usd_gpu_hour if is_bid and launch.bid else watch.max_price_usd_gpu_hour
    runtime_h = (24.0 if launch.max_runtime_s is None else launch.max_runtime_s / 3600) + END_PROVEN_S / 3600
    for key, window_h in _BUDGET_HOURS.items():
        limit: Decimal | None = getattr(budget, key)
        hours = 1.0 if key == "max_usd_hour" else min(runtime_h, window_h)
        cost = per_gpu * priced_units(watch.gpu_count_min) * Decimal(repr(hours))
        if limit is not None and cost > limit:
            yield (
                f"{section} {key} = {limit} blocks every launch at {'bid.max' if is_bid else _limit_key(watch)}: "
                f"{watch.gpu_count_min} GPU × {per_gpu} USD × {hours:.4g} h = {cost:.2f} USD"
            )


def _limit_key(watch: Watch) -> str:
    """The key that limits the price of an offer."""
    if watch.max_job_cost_usd is not None:
        return "max_job_cost"
    return "max_price" if watch.auto is None else "max_price_cap"


# --- durations too short for two observations -------------------------------------------------------------------------


_MIN_OBSERVATIONS = 2  # the first shows a state, the second that it persists


def duration_warnings(settings: Settings) -> Iterator[str]:
    """One line per warning: the key, how often it is observed, and the minimum."""
    rounds_s = {name: _round_s(settings, name) for name in settings.providers}
    for watch in settings.watches:
        for key, span_s, every_s, what in (*_polled_durations(rounds_s, watch), *_listed_durations(watch)):
            if span_s is not None and 0 < span_s < _MIN_OBSERVATIONS * every_s:
                yield (
                    f'watch "{watch.name}": {key} = {format_duration(span_s)} is shorter than two observations: '
                    f"{what} every {format_duration(every_s)}; set at least "
                    f"{format_duration(_MIN_OBSERVATIONS * every_s)}"
                )


def _polled_durations(rounds_s: Mapping[str, float], watch: Watch) -> Iterator[tuple[str, float, float, str]]:
    """Durations that depend on the poll interval, for the fastest of the watch's providers."""
    intervals_s = [round_s for name, round_s in rounds_s.items() if watch.providers is None or name in watch.providers]
    if intervals_s and watch.hold_for_s:
        yield "hold_for", watch.hold_for_s, min(intervals_s), "offers are polled"


def _round_s(settings: Settings, name: str) -> float:
    """Duration of one round of a provider's hunt: `poll_every`, or longer with many watches."""
    provider = settings.providers[name]
    watches = [watch for watch in settings.watches if watch.providers is None or name in watch.providers]
    queries = len(watches) + sum(watch.spot in {SpotPolicy.ANY, SpotPolicy.FIRST} for watch in watches)
    return max(provider.poll_every_s, queries * provider.search_interval_s)


def _listed_durations(watch: Watch) -> Iterator[tuple[str, float | None, float, str]]:
    """Durations that depend on how often instances are listed."""
    launch = watch.launch
    if launch is None:
        return
    running = (("idle_for", launch.idle_for_s), ("max_runtime", launch.max_runtime_s))
    wasteful = (("wasteful_for", launch.wasteful_for_s),) if launch.wasteful_below is not None else ()
    for key, span_s in (*running, *wasteful):
        yield f"launch.{key}", span_s, RUNNING_EVERY_S, "instances are listed"
    yield "launch.ready_within", launch.ready_within_s, CHANGING_EVERY_S, "instances that start are listed"
