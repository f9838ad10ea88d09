"""What is allowed and still unwise: secrets that other users of the machine can read, keys over plain http. Logged."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.domain.watches.watch import HookSpec, LaunchSpec
from gpuwatch.settings.interpolation import HOOKS, ResolvedSettings
from gpuwatch.settings.launch_warnings import launch_warnings
from gpuwatch.settings.model import Settings
from gpuwatch.settings.option_schemas import secret_keys
from gpuwatch.settings.secrets import secret_name
from gpuwatch.settings.sources import (
    ExternalValue,
    KeyPath,
    Sources,
    from_outside,
    is_secret,
)


def log_warnings(
    settings: Settings,
    secrets: Mapping[KeyPath, Any],
    sources: Sources,
    origins: Mapping[KeyPath, ExternalValue],
    resolved: ResolvedSettings,
) -> None:
    """One warning for each; nothing is refused.

    Args:
        secrets: all that are set, by their keys.
        origins: the keys that the file did not set.
        resolved: what the references of launches stand for.
    """
    hidden = secret_keys()
    given = [one for one in sources.given if one.file and (one.path in hidden or is_secret(one.path, one.text))]
    files = {one.file for one in given} | set(resolved.files)
    if sources.file and _holds_secrets(secrets, origins, resolved.outside):
        files.add(str(sources.file))
    found = [*_open_files(files), *_plain_http(settings), *_several_cards(settings), *launch_warnings(settings)]
    if found:
        import logging  # noqa: PLC0415 a start without cautions needs none

        for text in found:
            logging.getLogger("gpuwatch.settings").warning("%s", text)


def _holds_secrets(
    secrets: Mapping[KeyPath, Any], origins: Mapping[KeyPath, ExternalValue], outside: Collection[KeyPath]
) -> bool:
    """Does a secret stand in the settings file itself?"""
    return any(
        path not in outside
        for key, value in secrets.items()
        if not from_outside(key, origins)
        for path in _secret_paths(key, value)
    )


def _secret_paths(key: KeyPath, value: Any) -> Iterator[KeyPath]:
    """Where a secret stands; of a launch's environment, the variables whose names say that they hold one."""
    if key[-1] == "env":
        yield from ((*key, name) for name in value if secret_name(name))
    elif isinstance(value, HookSpec):
        yield from ([(*key, "secret")] if value.secret else [])
        yield from ([(*key, "url")] if value.url and "@" in value.url else [])
    elif key in secret_keys() or is_secret(key, str(value)):
        yield key


def _open_files(files: Collection[str]) -> Iterator[str]:
    for file in sorted(files):
        try:
            is_open = os.stat(file).st_mode & stat.S_IROTH
        except OSError:
            continue
        if is_open:
            yield f"{file}: every user of this machine can read the secrets in it; chmod 600 {file}"


def _plain_http(settings: Settings) -> Iterator[str]:
    sent = [(f"providers.{name}", one.base_url) for name, one in settings.providers.items() if one.api_key]
    if settings.channels.telegram:
        sent.append(("notify.telegram", settings.channels.telegram.base_url))
    for section, url in sent:
        if url.startswith("http://") and not _is_loopback(url):
            yield f"{section}.base_url: the secret goes over the network unencrypted; use https://"
    for watch in settings.watches:
        launch = watch.launch or LaunchSpec()
        for name in HOOKS:
            hook: HookSpec | None = getattr(launch, name)
            if hook and hook.url and hook.url.startswith("http://") and not _is_loopback(hook.url):
                yield f'watch "{watch.name}": launch.{name}.url: it goes over the network unencrypted; use https://'


def _several_cards(settings: Settings) -> Iterator[str]:
    """Names that stand for cards of several families, far apart in price: "RTX 6000"."""
    for watch in settings.watches:
        for text in watch.gpu:
            cards = [gpu for name in catalog().wanted(text) if (gpu := catalog().get(name)) and not gpu.members]
            families = list(dict.fromkeys(gpu.family for gpu in cards))
            if len(families) > 1:
                yield f'watch "{watch.name}": gpu {text!r} means several cards: write {" or ".join(families)}'


def _is_loopback(url: str) -> bool:
    from ipaddress import ip_address  # noqa: PLC0415 plain http is rare
    from urllib.parse import urlsplit  # noqa: PLC0415

    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
