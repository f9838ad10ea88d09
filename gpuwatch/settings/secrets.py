"""The secrets of the settings: where each is written, and their texts for redaction."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from gpuwatch.domain.watches.watch import LaunchSpec
from gpuwatch.errors import SettingsError
from gpuwatch.home_folder import expand_home, home_folder, xdg_folder
from gpuwatch.ports.settings import Option
from gpuwatch.secret import Secret
from gpuwatch.settings.external_values import ExternalValue
from gpuwatch.settings.model import Settings
from gpuwatch.settings.plugin_options import KeyPath

SecretAt = Callable[[KeyPath, Option], Secret]  # `secret_at` for given origins
_PLAIN_ENV_LENGTH = 12  # shorter values of variables without a secret-like name are words such as "offline"
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH", re.IGNORECASE)


def secret_at(origins: Mapping[KeyPath, ExternalValue], path: KeyPath, value: Option) -> Secret:
    """The secret of a key; without an origin for the key or a table above it, it is written in the settings file."""
    external = next((origins[path[:length]] for length in range(len(path), 0, -1) if path[:length] in origins), None)
    if external is None:
        return Secret(option_text(value))
    file = external.file if Path(external.file).name != ".env" else ""  # that one holds other variables as well
    return Secret(option_text(value), origin=origin_text(external), file=file)


def secret_texts(value: str | tuple[str, ...]) -> tuple[str, ...]:
    """The texts of a secret, which may be a list."""
    return value if isinstance(value, tuple) else (value,)


def option_text(value: Option) -> str | tuple[str, ...]:
    """The value of a secret option: a number is text as well."""
    return value if isinstance(value, tuple) else str(value)


def origin_text(source: ExternalValue) -> str:
    """Where a value was read, as `config show` prints it."""
    if source.kind == "credential":
        return source.label
    name = source.label.removeprefix(".env: ")
    return f"env {name}" + (" (.env)" if name != source.label else "")


def secret_values(settings: Settings) -> list[str]:
    """The text of every secret, to redact in all texts."""
    secrets = [text for secret in account_secrets(settings) for text in secret_texts(secret.reveal_option())]
    for launch in filter(None, (watch.launch for watch in settings.watches)):
        secrets += [value for name, value in launch.env.items() if may_be_secret(name, value)]
        secrets += [secret.reveal() for secret in launch_secrets(launch)]
    return secrets


def account_secrets(settings: Settings) -> Iterator[Secret]:
    """Every secret that gpuwatch itself uses."""
    web = settings.web
    yield from filter(None, (settings.heartbeat_url, web.password_hash, *(token.token for token in web.tokens)))
    for provider in settings.providers.values():
        yield from filter(None, (provider.api_key, provider.previous_api_key, *provider.secrets.values()))
    for channel in settings.channels.values():
        yield from channel.secrets.values()


def launch_secrets(launch: LaunchSpec) -> Iterator[Secret]:
    """Every secret of a launch; its other variables, its script and its commands may contain some as well."""
    yield from launch.secret_env.values()
    if launch.registry is not None:
        yield launch.registry.password
    for hook in filter(None, (launch.on_running, launch.before_stop, launch.on_ended)):
        yield from filter(None, (hook.url, hook.secret))


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


def may_be_secret(name: str, value: str) -> bool:
    """May this variable of a launch be a secret? Decided by its name, or the length of its value."""
    return has_secret_name(name) or len(value) >= _PLAIN_ENV_LENGTH


def has_secret_name(name: str) -> bool:
    """Does the name of this variable suggest a secret?"""
    return _SECRET_NAME.search(name) is not None
