"""Values from outside the settings file: variables, `.env`, the secret files that they name, systemd credentials.

And the secrets of the settings, most of which come from there: where each is written, and their texts for redaction.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec
from dotenv import dotenv_values

from gpuwatch.domain.watches.launch_spec import LaunchSpec
from gpuwatch.errors import SettingsError
from gpuwatch.home_folder import expand_home, home_folder, xdg_folder
from gpuwatch.ports.settings import Option
from gpuwatch.secret import Secret
from gpuwatch.settings.model import Settings
from gpuwatch.settings.plugin_options import (
    HEARTBEAT_URL,
    PREFIX,
    KeyPath,
    is_secret_key,
    key_aliases,
    secret_keys,
    variable_of,
)

NOT_SETTINGS = (
    "GPUWATCH_CONFIG", "GPUWATCH_FAILPOINT", "GPUWATCH_TEST_", "GPUWATCH_BENCH_", "GPUWATCH_OFFICIAL_CLIENT",
)  # fmt: skip
MAX_SECRET_BYTES = 64 * 1024
_NAME: Final = r"[A-Z][A-Z0-9_]*"
# Kubernetes sets these in every container next to a service named gpuwatch.
_SERVICE_LINK: Final = r"GPUWATCH_(SERVICE_(HOST|PORT)|PORT)(_[A-Z0-9_]+)?"

UnreadableValues = list[tuple[KeyPath, str]]  # the key (empty: unknown) and a complete error line


class ExternalValue(msgspec.Struct, frozen=True):
    """One value from outside the file. `text` may be a secret, so no repr shows it."""

    path: KeyPath
    text: str
    label: str  # its origin for display: "VAST_API_KEY", ".env: VAST_API_KEY", "credential gpuwatch_vast_api_key"
    kind: str  # "env" | ".env" | "credential"
    file: str = ""  # the file it was read from

    def __repr__(self) -> str:
        return f"ExternalValue({'.'.join(self.path)!r}, {self.label!r})"


def variable_values(
    env: Mapping[str, str], cwd: Path, errors: UnreadableValues, *, dotenv: bool = False
) -> Iterator[ExternalValue]:
    """The variables that are settings. The providers' own names come first: gpuwatch's names override them.

    Args:
        dotenv: the variables are those of `.env`.
    """
    aliases = key_aliases()
    kind, label_prefix, own_file = (".env", ".env: ", str(cwd / ".env")) if dotenv else ("env", "", "")
    for name in sorted(env, key=lambda name: (name.startswith(PREFIX), name)):
        path, is_file = _path_of(name, aliases)
        if path is None or not env[name]:
            continue
        label, base_name = f"{label_prefix}{name}", name.removesuffix("_FILE")
        if not is_file:
            yield ExternalValue(path, env[name], label, kind, own_file)
        elif env.get(base_name):
            errors.append((path, f"{label}: expected only one of {name} and {base_name}"))
        elif (text := _secret(path, cwd / env[name], label, errors)) is not None:
            yield ExternalValue(path, text, label, kind, str(cwd / env[name]))


def credential_values(env: Mapping[str, str], errors: UnreadableValues) -> Iterator[ExternalValue]:
    """systemd's credentials: files named as the variables, in any case, or as a provider names its key."""
    folder = env.get("CREDENTIALS_DIRECTORY")
    if not folder:
        return
    known = {alias.lower(): path for alias, path in key_aliases().items()}
    known |= {PREFIX.lower() + name.removeprefix(PREFIX.lower()): path for name, path in known.items()}
    try:
        names = os.listdir(folder)
    except OSError:
        return  # systemd creates the folder only if there are credentials
    for name in sorted(names, key=lambda name: (name.lower() not in known, name)):
        lower = name.lower()
        path = known.get(lower)
        if path is None and lower.startswith(PREFIX.lower()) and is_secret_key(_own_path(lower)):
            path = _own_path(lower)
        if path is None:
            errors += [((), line) for line in _unknown_credential(lower, known)]
            continue
        text = _secret(path, Path(folder, name), f"credential {name}", errors)
        if text is not None:
            yield ExternalValue(path, text, f"credential {name}", "credential", os.path.join(folder, name))


def read_dotenv(cwd: Path) -> dict[str, str]:
    """The variables of `.env` in the current folder, taken as they stand."""
    path = cwd / ".env"
    if not os.path.isfile(path):
        return {}
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise SettingsError([f"{path}: cannot read the file: {error.strerror}"]) from None
    except UnicodeDecodeError:
        raise SettingsError([f"{path}: expected UTF-8 text"]) from None
    values = dotenv_values(stream=io.StringIO(text), interpolate=False)
    return {name: value for name, value in values.items() if value is not None and re.fullmatch(_NAME, name)}


def secret_text(path: Path) -> str:
    """The text of a secret file without byte order mark and trailing newlines.

    Raises:
        ValueError: the error, to be appended to the file name; it quotes nothing.
    """
    try:
        with open(path, "rb") as file:
            content = file.read(MAX_SECRET_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "invalid file name"
        raise ValueError(f"cannot be read: {reason}") from None
    try:
        text = content.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8 text") from None
    if not text.strip():
        raise ValueError("is empty")
    if len(content) > MAX_SECRET_BYTES or "\x00" in text:
        raise ValueError("is not a secret: too long, or binary")
    return text


def _secret(path: KeyPath, file: Path, label: str, errors: UnreadableValues) -> str | None:
    try:
        return secret_text(file)
    except ValueError as error:
        errors.append((path, f"{label}: the secret file {file} {error}"))
        return None


def _path_of(name: str, aliases: Mapping[str, KeyPath]) -> tuple[KeyPath | None, bool]:
    """The key of a variable, and whether the variable names a file with the value."""
    base_name = name.removesuffix("_FILE")
    if name in aliases or base_name in aliases:
        return aliases[base_name] if base_name in aliases else aliases[name], base_name != name
    if not name.startswith(PREFIX) or name.startswith(NOT_SETTINGS) or re.fullmatch(_SERVICE_LINK, name):
        return None, False
    if base_name != name and is_secret_key(own_path := _own_path(base_name)):
        return own_path, True
    return _own_path(name), False


def _own_path(name: str) -> KeyPath:
    return tuple(name[len(PREFIX) :].lower().split("__"))


def _unknown_credential(name: str, known: Mapping[str, KeyPath]) -> Iterator[str]:
    """A misspelt name would leave a provider without its key; backup files of editors (`…~`, `….bak`) are ignored."""
    if not re.fullmatch(r"gpuwatch_[a-z0-9_]+", name):
        return
    from difflib import get_close_matches  # noqa: PLC0415 - only for this error

    matches = get_close_matches(name, [*known, *(variable_of(path).lower() for path in secret_keys())], n=1, cutoff=0.6)
    hint = f"did you mean {matches[0]}?" if matches else "expected a secret's variable in lower case"
    yield f"credential {name}: no such setting; {hint}"


# --- secrets ----------------------------------------------------------------------------------------------------------


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


def locate_secrets(settings: Settings, origins: Mapping[KeyPath, ExternalValue]) -> None:
    """Note in each secret that gpuwatch itself uses where it is written."""
    for path, secret in _secrets_by_key(settings):
        found = secret_at(origins, path, secret.reveal_option())
        secret.origin, secret.file = found.origin, found.file


def account_secrets(settings: Settings) -> Iterator[Secret]:
    """Every secret that gpuwatch itself uses."""
    return (secret for _, secret in _secrets_by_key(settings))


def _secrets_by_key(settings: Settings) -> Iterator[tuple[KeyPath, Secret]]:
    found: list[tuple[KeyPath, Secret | None]] = [
        (HEARTBEAT_URL, settings.watchdog.heartbeat_url),
        (("web", "password_hash"), settings.web.password_hash),
        *((("web", "tokens"), token.token) for token in settings.web.tokens),
    ]
    for name, provider in settings.providers.items():
        found += [(("providers", name, key), getattr(provider, key)) for key in ("api_key", "previous_api_key")]
        found += [(("providers", name, "options", key), secret) for key, secret in provider.secrets.items()]
    for name, channel in settings.channels.items():
        found += [(("notify", name, key), secret) for key, secret in channel.secrets.items()]
    return ((path, secret) for path, secret in found if secret is not None)


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
