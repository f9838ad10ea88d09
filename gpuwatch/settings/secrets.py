"""Which settings are secret, and how they are merged into validated (or cached) settings, which contain none."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from gpuwatch.domain.watches.env_text import EnvText, plain_json
from gpuwatch.domain.watches.watch import HookSpec, LaunchSpec, Watch
from gpuwatch.errors import SettingsError
from gpuwatch.home_folder import expand_home, home_folder, xdg_folder
from gpuwatch.ports import ChannelSettings, ProviderSettings
from gpuwatch.settings.interpolation import HOOKS
from gpuwatch.settings.model import Settings
from gpuwatch.settings.options import (
    HEARTBEAT_URL,
    WEB_SECRETS,
    KeyPath,
    secret_options,
    secret_texts,
    secrets_of_options,
)
from gpuwatch.settings.sources import ExternalValue, Sources, is_external
from gpuwatch.settings.web import web_tokens

# The keys of a launch that are secret, may hold a secret, or are read again at every start.
_LAUNCH_SECRETS: tuple[KeyPath, ...] = (
    ("env",), ("onstart",), ("ssh_key",), ("registry", "password"), *((hook,) for hook in HOOKS),
)  # fmt: skip
_WithOptions = TypeVar("_WithOptions", ProviderSettings, ChannelSettings)
_KEYS = ("api_key", "previous_api_key")  # of a provider
BLANK = ""  # replaces a secret in cached settings
_PLAIN_ENV_LENGTH = 12  # shorter values of variables without a secret-like name are words such as "offline"
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH", re.IGNORECASE)


def secrets_in(tree: Mapping[str, Any]) -> dict[KeyPath, Any]:
    """Every secret that is set, by key; the environment, start script and hooks of a launch may contain some as well.

    Args:
        tree: merged tables with resolved references.
    """
    providers = tree.get("providers")
    names = providers if isinstance(providers, dict) else ()
    keys = [("providers", name, key) for name in names for key in _KEYS]
    paths: list[KeyPath] = [("database_url",), HEARTBEAT_URL, *WEB_SECRETS, *keys]
    secrets = {path: _value_at(tree, path) for path in paths}
    for index, watch in enumerate(_watches(tree)):
        for key in _LAUNCH_SECRETS:
            secrets["watch", str(index), "launch", *key] = _value_at(watch, ("launch", *key))
    return {path: _plain(path, value) for path, value in secrets.items() if value} | secrets_of_options(tree)


def are_in_file(secrets: Mapping[KeyPath, Any], origins: Mapping[KeyPath, ExternalValue]) -> bool:
    """Does the file contain a secret? Then every start must parse it."""
    return any(
        not is_external(path, origins) for path, value in secrets.items() if path != ("database_url",) or "@" in value
    )


def without_secrets(settings: Settings) -> Settings:
    """The same settings without secrets, for the cache."""
    url = settings.database_url
    return msgspec.structs.replace(
        settings,
        database_url=BLANK if "@" in url else url,
        heartbeat_url=None,
        web=msgspec.structs.replace(settings.web, password_hash=None, tokens=()),
        providers={
            name: msgspec.structs.replace(
                _with_options(provider, ("providers", name, "options"), {}), **dict.fromkeys(_KEYS)
            )
            for name, provider in settings.providers.items()
        },
        channels={name: _with_options(channel, ("notify", name), {}) for name, channel in settings.channels.items()},
        watches=tuple(_launch_without_secrets(watch) for watch in settings.watches),
    )


def with_secrets(
    settings: Settings, secrets: Mapping[KeyPath, Any], sources: Sources, outside: Collection[KeyPath] = ()
) -> Settings:
    """The settings with all secrets and the database address.

    Args:
        outside: keys with references.
    """
    return msgspec.structs.replace(
        settings,
        database_url=database_url(secrets.get(("database_url",)) or settings.database_url, sources.env, sources.cwd),
        heartbeat_url=secrets.get(HEARTBEAT_URL),
        web=msgspec.structs.replace(
            settings.web, **{path[-1]: secrets[path] for path in WEB_SECRETS if path in secrets}
        ),
        providers={
            name: msgspec.structs.replace(
                _with_options(provider, ("providers", name, "options"), secrets),
                **{key: secrets.get(("providers", name, key)) for key in _KEYS},
            )
            for name, provider in settings.providers.items()
        },
        channels={
            name: _with_options(channel, ("notify", name), secrets) for name, channel in settings.channels.items()
        },
        watches=tuple(
            _launch_with_secrets(watch, index, secrets, outside) for index, watch in enumerate(settings.watches)
        ),
    )


def secret_values(settings: Settings) -> list[str]:
    """Every secret of the settings, to redact in all texts."""
    web = settings.web
    secrets: list[str | None] = [settings.heartbeat_url, web.password_hash, *(token.token for token in web.tokens)]
    for name, provider in settings.providers.items():
        secrets += [
            provider.api_key,
            provider.previous_api_key,
            *secret_texts(provider.options, ("providers", name, "options")),
        ]
    for name, channel in settings.channels.items():
        secrets += secret_texts(channel.options, ("notify", name))
    return [secret for secret in (*secrets, *_launch_secrets(settings)) if secret]


def database_url(text: str, env: Mapping[str, str], cwd: Path) -> str:
    """The URL as set, with a relative file below the current folder; empty: a file in the state folder."""
    if not text:
        return f"sqlite:///{state_folder(env) / 'gpuwatch.db'}"
    scheme, _, rest = text.partition(":///")
    if not scheme.startswith("sqlite") or rest.startswith("/"):
        return text
    name, mark, options = rest.partition("?")
    try:
        return f"{scheme}:///{cwd / expand_home(name)}{mark}{options}"
    except OSError as error:
        raise SettingsError([f"database_url: {error.strerror}"]) from None


def state_folder(env: Mapping[str, str]) -> Path:
    """`$STATE_DIRECTORY`, or the user's own state folder. Raises SettingsError: there is none."""
    if env.get("STATE_DIRECTORY"):
        return Path(env["STATE_DIRECTORY"].split(":")[0])  # source: systemd.exec(5), several are joined by colons
    if (state := xdg_folder(env, "XDG_STATE_HOME")) is not None:
        return state / "gpuwatch"
    if (home := home_folder(env)) is None:
        raise SettingsError(["this user has no home folder for the database: set HOME, XDG_STATE_HOME or database_url"])
    return home / ".local" / "state" / "gpuwatch"


def _launch_secrets(settings: Settings) -> list[str | None]:
    secrets: list[str | None] = []
    for watch in settings.watches:
        launch = watch.launch or LaunchSpec()
        secrets += [
            value for name, value in launch.env.items() if may_be_secret(name, value) or name in launch.secret_env
        ]
        secrets.append(launch.registry.password if launch.registry else None)
        for hook in filter(None, (launch.on_running, launch.before_stop, launch.on_ended)):
            secrets += [hook.url, hook.secret]
    return secrets


def may_be_secret(name: str, value: str) -> bool:
    """May this variable of a launch be a secret? Decided by its name, or the length of its value."""
    return has_secret_name(name) or len(value) >= _PLAIN_ENV_LENGTH


def has_secret_name(name: str) -> bool:
    """Does the name of this variable suggest a secret?"""
    return _SECRET_NAME.search(name) is not None


def _with_options(settings: _WithOptions, table: KeyPath, secrets: Mapping[KeyPath, Any]) -> _WithOptions:
    """Its secret options as in `secrets`, None if missing; the others do not change."""
    values = {path[-1]: secrets.get(path) for path in secret_options(table)}
    return msgspec.structs.replace(settings, options={**settings.options, **values}) if values else settings


def _launch_without_secrets(watch: Watch) -> Watch:
    if watch.launch is None:
        return watch
    registry = watch.launch.registry
    blanked: dict[str, Any] = {"env": {}, "secret_env": (), "onstart": None, "ssh_key": None, **dict.fromkeys(HOOKS)}
    blanked["registry"] = registry and msgspec.structs.replace(registry, password=BLANK)
    return msgspec.structs.replace(watch, launch=msgspec.structs.replace(watch.launch, **blanked))


def _launch_with_secrets(
    watch: Watch, index: int, secrets: Mapping[KeyPath, Any], outside: Collection[KeyPath]
) -> Watch:
    if watch.launch is None:
        return watch
    prefix = ("watch", str(index), "launch")
    values: dict[str, Any] = {key: secrets.get((*prefix, key)) for key in ("onstart", "ssh_key", *HOOKS)}
    values["env"] = secrets.get((*prefix, "env"), {})
    values["secret_env"] = tuple(name for name in values["env"] if (*prefix, "env", name) in outside)
    registry = watch.launch.registry
    password = secrets.get((*prefix, "registry", "password"), BLANK)
    values["registry"] = registry and msgspec.structs.replace(registry, password=password)
    return msgspec.structs.replace(watch, launch=msgspec.structs.replace(watch.launch, **values))


def _plain(path: KeyPath, value: Any) -> Any:
    """As parsed by the schema."""
    if path == ("web", "tokens"):
        return web_tokens(value)
    if path[-1] in {*_KEYS, "database_url", "password_hash"}:
        return str(value).strip()
    if path == HEARTBEAT_URL:
        return str(value).strip().rstrip("/")
    if path[-1] in HOOKS:
        return HookSpec(**value) if isinstance(value, dict) else HookSpec(command=str(value))
    return dict(value) if path[-1] == "env" else str(value)


def _watches(tree: Mapping[str, Any]) -> list[Any]:
    watches = tree.get("watch", [])
    if isinstance(watches, EnvText):
        watches = plain_json(watches)
    return watches if isinstance(watches, list) else []


def _value_at(tree: Any, path: KeyPath) -> Any:
    for part in path:
        tree = tree.get(part) if isinstance(tree, dict) else None
    return tree
