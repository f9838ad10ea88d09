"""Where settings come from: the TOML file, the environment and `.env`, systemd credentials, secret files.

This module reads and merges; `validate` checks. It does not use pydantic, so that a start with cached settings is fast,
and it keeps the origin of every value for error messages. docs/decisions/0060 compares it with pydantic-settings.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from gpuwatch.domain.watches.env_text import EnvText, plain_json
from gpuwatch.errors import SettingsError
from gpuwatch.home_folder import expand_home, xdg_folder
from gpuwatch.settings.options import KeyPath, is_secret_key, key_aliases, secret_keys

PREFIX = "GPUWATCH_"
NOT_SETTINGS = (
    "GPUWATCH_CONFIG", "GPUWATCH_FAILPOINT", "GPUWATCH_TEST_", "GPUWATCH_BENCH_", "GPUWATCH_OFFICIAL_CLIENT",
)  # fmt: skip
MAX_FILE_BYTES = 4 * 1024 * 1024
MAX_SECRET_BYTES = 64 * 1024
_FILE_PATH = ("",)  # not a key
_REQUIRED = frozenset({_FILE_PATH, ("database_url",)})
_TABLES = frozenset({"budget", "providers", "record", "launch", "notify", "orchestrator", "watch", "watchdog", "web"})
_NAME: Final = r"[A-Z][A-Z0-9_]*"
# Kubernetes sets these in every container next to a service named gpuwatch.
_SERVICE_LINK: Final = r"GPUWATCH_(SERVICE_(HOST|PORT)|PORT)(_[A-Z0-9_]+)?"

UnreadableValues = list[tuple[KeyPath, str]]  # the key (empty: unknown) and a complete error line


class ExternalValue(msgspec.Struct, frozen=True):
    """One value from outside the file. `text` may be a secret, so no repr shows it."""

    path: KeyPath
    text: str
    label: str  # its origin for display: "VAST_API_KEY", ".env: VAST_API_KEY", "credential gpuwatch_vast_api_key"
    kind: str  # "env" | "credential"
    file: str = ""  # the file it was read from

    def __repr__(self) -> str:
        return f"ExternalValue({'.'.join(self.path)!r}, {self.label!r})"


class Sources(msgspec.Struct, frozen=True):
    """All values that were read; later values of `external` win."""

    file: Path | None
    content: bytes
    external: tuple[ExternalValue, ...]
    env: Mapping[str, str]
    cwd: Path
    dotenv: Mapping[str, str] = {}

    def __repr__(self) -> str:
        return f"Sources({str(self.file)!r}, {len(self.external)} given)"

    @property
    def display_name(self) -> str:
        """The file, for display."""
        return str(self.file) if self.file else "settings"


def collect(
    config: str | None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    *,
    unreadable: UnreadableValues | None = None,
) -> Sources:
    """Read every source.

    Args:
        env: the environment; None: this process's.
        cwd: for relative paths and `.env`; None: the current folder.
        unreadable: collects the values that cannot be read and ignores them; None: they are errors.

    Raises:
        SettingsError: a named file is missing, or something cannot be read.
    """
    env, cwd, aliases = os.environ if env is None else env, cwd or Path.cwd(), key_aliases()
    dotenv = _read_dotenv(cwd)
    file = find_file(config, {**dotenv, **env}, cwd)
    errors: UnreadableValues = []
    content = _read_file(file, errors)
    external = [
        *_credentials(env, aliases, errors),
        *_variables({k: v for k, v in dotenv.items() if k not in env}, cwd, aliases, ".env: ", errors),
        *_variables(env, cwd, aliases, "", errors),
    ]
    _raise_or_collect(errors, unreadable)
    return Sources(file, content, tuple(external), env, cwd, dotenv)


def find_file(config: str | None, env: Mapping[str, str], cwd: Path) -> Path | None:
    """The settings file: the first that exists, be it unreadable. A named file must exist."""
    for configured, origin in ((config, "--config"), (env.get("GPUWATCH_CONFIG"), "$GPUWATCH_CONFIG")):
        if configured:
            try:
                path = cwd / expand_home(configured)
            except OSError as error:
                raise SettingsError([f"{configured}: {error.strerror} ({origin})"]) from None
            if not path.exists() or path.is_dir():
                raise SettingsError([f"{configured}: no such file ({origin})"])
            return path
    home = Path(env["HOME"], ".config") if os.path.isabs(env.get("HOME", "")) else None
    config_home = xdg_folder(env, "XDG_CONFIG_HOME") or home
    candidates = [cwd / "gpuwatch.toml", *([config_home / "gpuwatch" / "gpuwatch.toml"] if config_home else [])]
    return next((path for path in [*candidates, Path("/etc/gpuwatch/gpuwatch.toml")] if os.path.lexists(path)), None)


def parse_file(sources: Sources) -> dict[str, Any]:
    """The file's tables; decimal numbers are exact Decimals.

    Raises:
        SettingsError: it is not TOML; one line with its line number.
    """
    if not sources.content.strip():
        return {}
    import tomllib  # noqa: PLC0415 - not every start parses the file
    from decimal import Decimal  # noqa: PLC0415

    try:
        text = sources.content.decode("utf-8-sig")
        return tomllib.loads(text, parse_float=Decimal)
    except UnicodeDecodeError as error:
        line = sources.content.count(b"\n", 0, error.start) + 1
        raise SettingsError([f"{sources.display_name}:{line}: expected UTF-8 text"]) from None
    except (tomllib.TOMLDecodeError, ValueError, ArithmeticError, RecursionError) as error:
        raise SettingsError([_syntax_error(sources, text, error)]) from None


def merge(
    file_tree: dict[str, Any], sources: Sources, unreadable: UnreadableValues | None = None
) -> tuple[dict[str, Any], dict[KeyPath, ExternalValue]]:
    """The file's tables with all other values merged into them, and the origin of those.

    Args:
        unreadable: collects invalid values and ignores them; None: they are errors.

    Raises:
        SettingsError: a value for a whole table is not JSON.
    """
    tree = file_tree
    origins: dict[KeyPath, ExternalValue] = {}
    errors: UnreadableValues = []
    for one in sorted(sources.external, key=lambda external: len(external.path)):
        try:
            value = _value(one)
        except ValueError as error:
            errors.append((one.path, f"{one.label}: {'.'.join(one.path)}: {error}"))
            continue
        if not _set_value(tree, one.path, value):
            conflict = f"expected a table above it; set {variable_of(one.path[:1])} as JSON"
            errors.append((one.path, f"{one.label}: {'.'.join(one.path)}: {conflict}"))
        origins[one.path] = one
    _raise_or_collect(errors, unreadable)
    return tree, origins


def _raise_or_collect(errors: UnreadableValues, unreadable: UnreadableValues | None) -> None:
    """The file and the database address are required; everything else may be ignored."""
    if unreadable is None or any(path in _REQUIRED for path, _ in errors):
        if errors:
            raise SettingsError([line for _, line in errors])
    else:
        unreadable += errors


def variable_of(path: KeyPath) -> str:
    """The environment variable of a key."""
    return PREFIX + "__".join(path).upper()


def is_external(path: KeyPath, origins: Mapping[KeyPath, ExternalValue]) -> bool:
    """Was this key, or a table above it, set by the environment or a credential?"""
    return any(path[:length] in origins for length in range(1, len(path) + 1))


def has_secret(path: KeyPath, text: str) -> bool:
    """Is this a secret? A database URL only if it contains a password."""
    return is_secret_key(path) and (path != ("database_url",) or "@" in text)


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


def _value(one: ExternalValue) -> Any:
    """A whole table is JSON; a single key stays text until its type is known."""
    match one.path:
        case (table,) if table in _TABLES:
            return plain_json(one.text)
        case ("notify", "quiet_hours"):
            return EnvText(one.text)
        case ("providers" | "notify", _) | ("providers", _, "options"):
            return plain_json(one.text)
    return EnvText(one.text)


def _set_value(tree: dict[str, Any], path: KeyPath, value: Any) -> bool:
    for part in path[:-1]:
        table = tree.setdefault(part, {})
        if part == "commission" and not isinstance(table, dict):
            table = tree[part] = {"rate": table}  # a plain number is its rate
        if not isinstance(table, dict):
            return False
        tree = table
    existing = tree.get(path[-1])
    if isinstance(existing, dict) and isinstance(value, dict):
        return all(_set_value(existing, (key,), one) for key, one in value.items())
    tree[path[-1]] = value
    return True


def _variables(
    env: Mapping[str, str], cwd: Path, aliases: Mapping[str, KeyPath], label_prefix: str, errors: UnreadableValues
) -> Iterator[ExternalValue]:
    """The providers' own names come first: gpuwatch's names override them."""
    for name in sorted(env, key=lambda name: (name.startswith(PREFIX), name)):
        path, is_file = _path_of(name, aliases)
        if path is None or not env[name]:
            continue
        text: str | None = env[name]
        file = str(cwd / ".env") if label_prefix else ""
        if is_file:
            if env.get(name.removesuffix("_FILE")):
                conflict = f"{label_prefix}{name}: expected only one of {name} and {name.removesuffix('_FILE')}"
                errors.append((path, conflict))
                continue
            file = str(cwd / env[name])
            text = _secret(path, Path(file), f"{label_prefix}{name}", errors)
        if text is not None:
            yield ExternalValue(path, text, f"{label_prefix}{name}", "env", file)


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
    if base_name != name and is_secret_key(own_path := _gpuwatch_path(base_name)):
        return own_path, True
    return _gpuwatch_path(name), False


def _gpuwatch_path(name: str) -> KeyPath:
    return tuple(name[len(PREFIX) :].lower().split("__"))


def _credentials(
    env: Mapping[str, str], aliases: Mapping[str, KeyPath], errors: UnreadableValues
) -> Iterator[ExternalValue]:
    """systemd's credentials: files named as the variables, in any case, or as a provider names its key."""
    folder = env.get("CREDENTIALS_DIRECTORY")
    if not folder:
        return
    known = {alias.lower(): path for alias, path in aliases.items()}
    known |= {PREFIX.lower() + name.removeprefix(PREFIX.lower()): path for name, path in known.items()}
    try:
        names = os.listdir(folder)
    except OSError:
        return  # systemd creates the folder only if there are credentials
    for name in sorted(names, key=lambda name: (name.lower() not in known, name)):
        lower = name.lower()
        path = known.get(lower)
        if path is None and lower.startswith(PREFIX.lower()) and is_secret_key(_gpuwatch_path(lower)):
            path = _gpuwatch_path(lower)
        if path is None:
            errors += [((), line) for line in _unknown_credential(lower, known)]
            continue
        text = _secret(path, Path(folder, name), f"credential {name}", errors)
        if text is not None:
            yield ExternalValue(path, text, f"credential {name}", "credential", os.path.join(folder, name))


def _unknown_credential(name: str, known: Mapping[str, KeyPath]) -> Iterator[str]:
    """A misspelt name would leave a provider without its key; backup files of editors (`…~`, `….bak`) are ignored."""
    if not re.fullmatch(r"gpuwatch_[a-z0-9_]+", name):
        return
    from difflib import get_close_matches  # noqa: PLC0415 - only for this error

    matches = get_close_matches(name, [*known, *(variable_of(path).lower() for path in secret_keys())], n=1, cutoff=0.6)
    hint = f"did you mean {matches[0]}?" if matches else "expected a secret's variable in lower case"
    yield f"credential {name}: no such setting; {hint}"


def _read_dotenv(cwd: Path) -> dict[str, str]:
    path = cwd / ".env"
    if not os.path.isfile(path):
        return {}
    import io  # noqa: PLC0415 - most starts have no .env

    from dotenv import dotenv_values  # noqa: PLC0415

    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise SettingsError([f"{path}: cannot read the file: {error.strerror}"]) from None
    except UnicodeDecodeError:
        raise SettingsError([f"{path}: expected UTF-8 text"]) from None
    values = dotenv_values(stream=io.StringIO(text), interpolate=False)
    return {name: value for name, value in values.items() if value is not None and re.fullmatch(_NAME, name)}


def _read_file(file: Path | None, errors: UnreadableValues) -> bytes:
    if file is None:
        return b""
    try:
        with open(file, "rb") as stream:
            content = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        errors.append((_FILE_PATH, f"{file}: cannot read the file: {error.strerror}"))
        return b""
    if len(content) > MAX_FILE_BYTES:
        errors.append((_FILE_PATH, f"{file}: expected a file of at most 4 MiB"))
    return content


def _syntax_error(sources: Sources, text: str, error: Exception) -> str:
    position = re.search(r"\(at line (\d+), column (\d+)\)", str(error))
    line = int(position[1]) if position else text.count("\n") + 1
    reason = str(error).split(" (at ")[0].split(":")[0]
    reason = re.sub(r"'[^']*'|\"[^\"]*\"", "…", reason)  # never show a value
    return f"{sources.display_name}:{line}: not valid TOML: {reason[:1].lower()}{reason[1:]}"
