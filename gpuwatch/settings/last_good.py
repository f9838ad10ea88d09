"""The settings that a daemon last worked with, without secrets, in the state folder: rescue mode needs them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gpuwatch.settings.model import Settings
from gpuwatch.settings.own_file import read_own, write_own
from gpuwatch.settings.secrets import state_folder, without_secrets

FILE = "last-settings.bin"


def store_last_good(settings: Settings, env: Mapping[str, str]) -> None:
    """Keep them, readable for this user alone; failing to is no error: they are a second safety."""
    folder = state_folder(env)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_own(folder / FILE, msgspec.msgpack.encode(without_secrets(settings)))
    except (OSError, TypeError, ValueError):
        return


def load_last_good(env: Mapping[str, str]) -> Settings | None:
    """What was kept; None: nothing, or another version of gpuwatch kept it in a form that this one cannot read."""
    body = read_own(state_folder(env) / FILE)
    if body is None:
        return None
    try:
        return msgspec.msgpack.decode(body, type=Settings)
    except (ValueError, TypeError, ArithmeticError, msgspec.MsgspecError):
        return None
