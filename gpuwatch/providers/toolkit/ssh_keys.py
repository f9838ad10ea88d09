"""Checks that the SSH key of the settings exists: without it a provider refuses the order."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from gpuwatch.errors import ProviderError
from gpuwatch.ports.prerequisites import Prerequisite, PrerequisiteName
from gpuwatch.ports.settings import Option

_SHOWN = 40


def ssh_key_prerequisite(ssh_key: Option, list_registered: Callable[[], Iterable[object]], mend: str) -> Prerequisite:
    """Check the account's key that `options.ssh_key` names. Raises nothing.

    Args:
        ssh_key: the option.
        list_registered: returns the names or ids of the account's keys; may raise ProviderError.
        mend: what to add to the settings.
    """
    name = PrerequisiteName.KEY_PAIR
    if not ssh_key:
        return Prerequisite(name=name, met=False, text="options.ssh_key is not set", mend=mend)
    try:
        exists = ssh_key in list_registered()
    except ProviderError as error:
        return Prerequisite(name=name, met=None, text=str(error))
    if exists:
        return Prerequisite(name=name, met=True, text="the SSH key of options.ssh_key exists")
    return Prerequisite(name=name, met=False, text=f"there is no SSH key {str(ssh_key)[:_SHOWN]!r}", mend=mend)


def public_key_prerequisite(ssh_key: Option, pattern: re.Pattern[str], mend: str) -> Prerequisite:
    """Check the public key in `options.ssh_key`.

    Args:
        pattern: pattern of what the create request accepts.
    """
    name = PrerequisiteName.KEY_PAIR
    if isinstance(ssh_key, str) and pattern.fullmatch(ssh_key.strip()):
        return Prerequisite(name=name, met=True, text="options.ssh_key is set")
    text = "options.ssh_key is not a public key" if ssh_key else "options.ssh_key is not set"
    return Prerequisite(name=name, met=False, text=text, mend=mend)
