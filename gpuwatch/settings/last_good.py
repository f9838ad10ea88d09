"""The last valid settings of the daemon, without secrets, in the state folder: rescue mode needs them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gpuwatch.errors import SettingsError
from gpuwatch.settings.model import Settings
from gpuwatch.settings.own_file import read_private_file, write_private_file
from gpuwatch.settings.secrets import state_folder, without_secrets

FILE = "last-settings.bin"


def store_last_good(settings: Settings, env: Mapping[str, str]) -> None:
    """Store them, readable for this user only; errors are ignored, because this is only a fallback."""
    try:
        folder = state_folder(env)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private_file(folder / FILE, msgspec.msgpack.encode(without_secrets(settings)))
    except (OSError, TypeError, ValueError, SettingsError):  # the latter: a user without a home folder
        return


def load_last_good(env: Mapping[str, str]) -> Settings | None:
    """The stored settings; None: none, or stored by a gpuwatch version with another format."""
    try:
        body = read_private_file(state_folder(env) / FILE)
    except SettingsError:
        return None
    if body is None:
        return None
    try:
        return msgspec.msgpack.decode(body, type=Settings)
    except (ValueError, TypeError, ArithmeticError, msgspec.MsgspecError):
        return None
