"""The last valid settings of the daemon, without secrets, in the state folder: rescue mode needs them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gpuwatch.domain.watches.watch import Watch
from gpuwatch.errors import SettingsError
from gpuwatch.secret import Secret
from gpuwatch.settings.model import Settings
from gpuwatch.settings.own_file import read_private_file, write_private_file
from gpuwatch.settings.secrets import state_folder

FILE = "last-settings.bin"


def store_last_good(settings: Settings, env: Mapping[str, str]) -> None:
    """Store them, readable for this user only; errors are ignored, because this is only a fallback."""
    try:
        folder = state_folder(env)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private_file(folder / FILE, msgspec.msgpack.encode(_storable(settings), enc_hook=_place_of))
    except (OSError, TypeError, ValueError, SettingsError):  # the latter: a user without a home folder
        return


def load_last_good(env: Mapping[str, str]) -> Settings | None:
    """The stored settings, whose secrets have no text; None: none, or stored by a version with another format."""
    try:
        body = read_private_file(state_folder(env) / FILE)
    except SettingsError:
        return None
    if body is None:
        return None
    try:
        return msgspec.msgpack.decode(body, type=Settings, dec_hook=_without_text)
    except (ValueError, TypeError, ArithmeticError, msgspec.MsgspecError):
        return None


def _storable(settings: Settings) -> Settings:
    """The settings without an address that holds a password, and without what launches run: it may hold secrets."""
    url = settings.database_url
    return msgspec.structs.replace(
        settings,
        database_url="" if "@" in url else url,
        watches=tuple(_without_contents(watch) for watch in settings.watches),
    )


def _without_contents(watch: Watch) -> Watch:
    if watch.launch is None:
        return watch
    contents = dict.fromkeys(("onstart", "ssh_key", "registry", "on_running", "before_stop", "on_ended"))
    launch = msgspec.structs.replace(watch.launch, env={}, secret_env={}, **contents)
    return msgspec.structs.replace(watch, launch=launch)


def _place_of(secret: Any) -> dict[str, str]:
    """A secret as it is stored: where it is written, without its text."""
    if not isinstance(secret, Secret):
        raise TypeError(type(secret).__name__)
    return {"origin": secret.origin, "file": secret.file}


def _without_text(_type: type, place: Any) -> Secret:
    return Secret(origin=place["origin"], file=place["file"])
