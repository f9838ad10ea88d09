"""What is allowed and still unwise: secrets that other users of the machine can read, keys over plain http. Logged."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from typing import Any

from gpuwatch.settings.model import Settings
from gpuwatch.settings.sources import Given, Path_, Sources, from_outside, is_secret


def tell(settings: Settings, secrets: Mapping[Path_, Any], sources: Sources, origins: Mapping[Path_, Given]) -> None:
    """One warning for each; nothing is refused.

    Args:
        secrets: all that are set, by their keys.
        origins: the keys that the file did not set.
    """
    found = [*_open_files(secrets, sources, origins), *_plain_http(settings)]
    if found:
        import logging  # noqa: PLC0415 a start without cautions needs none

        for text in found:
            logging.getLogger("gpuwatch.settings").warning("%s", text)


def _open_files(secrets: Mapping[Path_, Any], sources: Sources, origins: Mapping[Path_, Given]) -> Iterator[str]:
    files = {one.file for one in sources.given if one.file and is_secret(one.path, one.text)}
    if sources.file and any(
        is_secret(path, str(secrets[path])) and not from_outside(path, origins) for path in secrets
    ):
        files.add(str(sources.file))
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


def _is_loopback(url: str) -> bool:
    from ipaddress import ip_address  # noqa: PLC0415 plain http is rare
    from urllib.parse import urlsplit  # noqa: PLC0415

    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
