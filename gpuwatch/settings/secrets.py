"""Which settings are secret, and how they join settings that were judged (or remembered) without them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from gpuwatch.settings.model import Channels, Settings
from gpuwatch.settings.sources import Given, Path_, Sources, from_outside
from gpuwatch.watches.env_text import EnvText, plain_json
from gpuwatch.watches.watch import Watch

_FIXED: tuple[Path_, ...] = (
    ("database_url",),
    ("notify", "telegram", "bot_token"),
    ("notify", "email", "password"),
    ("notify", "apprise", "urls"),
)
BLANK = ""  # stands for a secret in settings that are remembered


def secrets_in(tree: Mapping[str, Any]) -> dict[Path_, Any]:
    """Every secret that is set, by its key; a launch's environment and start script may hold some too."""
    providers = tree.get("providers")
    paths = [*_FIXED, *(("providers", name, "api_key") for name in (providers if isinstance(providers, dict) else ()))]
    found = {path: _at(tree, path) for path in paths}
    for index, watch in enumerate(_watches(tree)):
        for key in ("env", "onstart"):
            found["watch", str(index), "launch", key] = _at(watch, ("launch", key))
    return {path: _plain(path, value) for path, value in found.items() if value}


def from_file(secrets: Mapping[Path_, Any], origins: Mapping[Path_, Given]) -> bool:
    """Does any of them stand in the file? Then it must be parsed at every start."""
    return any(
        not from_outside(path, origins) for path, value in secrets.items() if path != ("database_url",) or "@" in value
    )


def without_secrets(settings: Settings) -> Settings:
    """The same settings, fit to be kept in a file: no secret in them."""
    channels = settings.channels
    url = settings.database_url
    return msgspec.structs.replace(
        settings,
        database_url=BLANK if "@" in url else url,
        providers={name: msgspec.structs.replace(one, api_key=None) for name, one in settings.providers.items()},
        channels=Channels(
            telegram=channels.telegram and msgspec.structs.replace(channels.telegram, bot_token=BLANK),
            email=channels.email and msgspec.structs.replace(channels.email, password=None),
            apprise=channels.apprise and msgspec.structs.replace(channels.apprise, urls=()),
        ),
        watches=tuple(_quiet(watch) for watch in settings.watches),
    )


def with_secrets(settings: Settings, secrets: Mapping[Path_, Any], sources: Sources) -> Settings:
    """Settings as they are used: every secret at its place, and the database found."""
    channels = settings.channels
    telegram, email, apprise = channels.telegram, channels.email, channels.apprise
    if telegram:
        telegram = msgspec.structs.replace(telegram, bot_token=secrets["notify", "telegram", "bot_token"])
    if email:
        email = msgspec.structs.replace(email, password=secrets.get(("notify", "email", "password")))
    if apprise:
        apprise = msgspec.structs.replace(apprise, urls=secrets["notify", "apprise", "urls"])
    return msgspec.structs.replace(
        settings,
        database_url=database_url(secrets.get(("database_url",)) or settings.database_url, sources.env, sources.cwd),
        providers={
            name: msgspec.structs.replace(one, api_key=secrets.get(("providers", name, "api_key")))
            for name, one in settings.providers.items()
        },
        channels=Channels(telegram, email, apprise),
        watches=tuple(_loud(watch, index, secrets) for index, watch in enumerate(settings.watches)),
    )


def database_url(text: str, env: Mapping[str, str], cwd: Path) -> str:
    """The URL as set, a relative file against the current folder; empty: a file in the state folder."""
    if not text:
        return f"sqlite:///{_state_folder(env) / 'gpuwatch.db'}"
    scheme, _, rest = text.partition(":///")
    if not scheme.startswith("sqlite") or rest.startswith("/"):
        return text
    name, mark, options = rest.partition("?")
    return f"{scheme}:///{cwd / name}{mark}{options}"


def _state_folder(env: Mapping[str, str]) -> Path:
    if env.get("STATE_DIRECTORY"):
        return Path(env["STATE_DIRECTORY"].split(":")[0])  # source: systemd.exec(5), several are joined by colons
    home = env.get("HOME") or os.path.expanduser("~")
    return Path(env.get("XDG_STATE_HOME") or Path(home, ".local", "state"), "gpuwatch")


def _quiet(watch: Watch) -> Watch:
    if watch.launch is None or not (watch.launch.env or watch.launch.onstart):
        return watch
    return msgspec.structs.replace(watch, launch=msgspec.structs.replace(watch.launch, env={}, onstart=None))


def _loud(watch: Watch, index: int, secrets: Mapping[Path_, Any]) -> Watch:
    env = secrets.get(("watch", str(index), "launch", "env"), {})
    onstart = secrets.get(("watch", str(index), "launch", "onstart"))
    if watch.launch is None or not (env or onstart):
        return watch
    return msgspec.structs.replace(watch, launch=msgspec.structs.replace(watch.launch, env=env, onstart=onstart))


def _plain(path: Path_, value: Any) -> Any:
    """As the schema reads it: see `tables`."""
    if path[-1] == "urls":
        if isinstance(value, EnvText):
            value = plain_json(value) if value.lstrip().startswith("[") else [str(value)]
        return tuple(map(str, [value] if isinstance(value, str) else value))
    if path[-1] in {"api_key", "bot_token", "database_url"}:
        return str(value).strip()
    return dict(value) if path[-1] == "env" else str(value)


def _watches(tree: Mapping[str, Any]) -> list[Any]:
    found = tree.get("watch", [])
    if isinstance(found, EnvText):
        found = plain_json(found)
    return found if isinstance(found, list) else []


def _at(tree: Any, path: Path_) -> Any:
    for part in path:
        tree = tree.get(part) if isinstance(tree, dict) else None
    return tree
