"""Checks that the SSH key of the settings exists: without it a provider refuses the order."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from gpuwatch.errors import ProviderError
from gpuwatch.ports.prerequisites import Prerequisite, PrerequisiteName
from gpuwatch.ports.settings import Option

_SHOWN = 40


def ssh_key_prerequisite(wanted: Option, registered: Callable[[], Iterable[object]], mend: str) -> Prerequisite:
    """Check the account's key that `options.ssh_key` names. Raises nothing.

    Args:
        wanted: the option.
        registered: returns the names or ids of the account's keys; may raise ProviderError.
        mend: what to add to the settings.
    """
    name = PrerequisiteName.KEY_PAIR
    if not wanted:
        return Prerequisite(name=name, met=False, text="options.ssh_key is not set", mend=mend)
    try:
        is_there = wanted in registered()
    except ProviderError as error:
        return Prerequisite(name=name, met=None, text=str(error))
    if is_there:
        return Prerequisite(name=name, met=True, text="the SSH key of options.ssh_key exists")
    return Prerequisite(name=name, met=False, text=f"there is no SSH key {str(wanted)[:_SHOWN]!r}", mend=mend)


def public_key_prerequisite(wanted: Option, form: re.Pattern[str], mend: str) -> Prerequisite:
    """Check the public key in `options.ssh_key`.

    Args:
        form: pattern of what the create request accepts.
    """
    name = PrerequisiteName.KEY_PAIR
    if isinstance(wanted, str) and form.fullmatch(wanted.strip()):
        return Prerequisite(name=name, met=True, text="options.ssh_key is set")
    text = "options.ssh_key is not a public key" if wanted else "options.ssh_key is not set"
    return Prerequisite(name=name, met=False, text=text, mend=mend)
