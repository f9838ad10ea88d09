"""Where settings come from: the file, the environment and `.env`, secret files. Read, not yet judged.

Nothing here needs pydantic: a start with settings that were judged before reads its secrets through this alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from gpuwatch.domain.watches.env_text import EnvText, plain_json
from gpuwatch.errors import SettingsError
from gpuwatch.settings.secret_files import read_secret

PREFIX = "GPUWATCH_"
NOT_SETTINGS = (
    "GPUWATCH_CONFIG", "GPUWATCH_FAILPOINT", "GPUWATCH_TEST_", "GPUWATCH_BENCH_", "GPUWATCH_OFFICIAL_CLIENT",
)  # fmt: skip
_THE_FILE = ("",)  # no key
_NEEDED = frozenset({_THE_FILE, ("database_url",)})
MAX_FILE_BYTES = 4 * 1024 * 1024
_SECRET_KEYS = ("api_key", "bot_token", "password", "urls", "database_url")
_NAME = re.compile(r"[A-Z][A-Z0-9_]*")
# Kubernetes sets these in every container beside a service that is called gpuwatch.
_SERVICE_LINK = re.compile(r"GPUWATCH_(SERVICE_(HOST|PORT)|PORT)(_[A-Z0-9_]+)?")

KeyPath = tuple[str, ...]  # a key's path: ("providers", "vastai", "api_key")
UnreadableValues = list[tuple[KeyPath, str]]  # what cannot be read: its key (empty: none is known) and a finished line


class ExternalValue(msgspec.Struct, frozen=True):
    """One value outside the file. `label` names its origin for a person, `text` may be a secret: no repr shows it."""

    path: KeyPath
    text: str
    label: str  # "VAST_API_KEY", ".env: VAST_API_KEY", "credential gpuwatch_vast_api_key"
    kind: str  # "env" | "credential"
    file: str = ""  # that it was read from

    def __repr__(self) -> str:
        return f"Given({'.'.join(self.path)!r}, {self.label!r})"


class Sources(msgspec.Struct, frozen=True):
    """All that was found, the later of `given` winning."""

    file: Path | None
    content: bytes
    given: tuple[ExternalValue, ...]
    env: Mapping[str, str]
    cwd: Path
    dotenv: Mapping[str, str] = {}

    def __repr__(self) -> str:
        return f"Sources({str(self.file)!r}, {len(self.given)} given)"

    @property
    def shown(self) -> str:
        """The file as a person knows it."""
        return str(self.file) if self.file else "settings"


def collect(
    config: str | None,
    env: Mapping[str, str],
    cwd: Path,
    aliases: Mapping[str, KeyPath],
    *,
    unreadable: UnreadableValues | None = None,
) -> Sources:
    """Read every source.

    Args:
        aliases: the ecosystem's own names of secrets, with the keys they stand for.
        lost: filled with what cannot be read of the environment and credentials, which is then left out; None: that
            is a fault.

    Raises:
        SettingsError: a file that was named is not there, or something cannot be read.
    """
    dotenv = _read_dotenv(cwd)
    file = find_file(config, {**dotenv, **env}, cwd)
    faults: UnreadableValues = []
    content = _read_file(file, faults)
    given = [
        *_credentials(env, aliases, faults),
        *_variables({k: v for k, v in dotenv.items() if k not in env}, cwd, aliases, ".env: ", faults),
        *_variables(env, cwd, aliases, "", faults),
    ]
    _raise_or_keep(faults, unreadable)
    return Sources(file, content, tuple(given), env, cwd, dotenv)


def find_file(config: str | None, env: Mapping[str, str], cwd: Path) -> Path | None:
    """The settings file: the first that exists. One that was named must exist."""
    for named, by in ((config, "--config"), (env.get("GPUWATCH_CONFIG"), "$GPUWATCH_CONFIG")):
        if named:
            path = cwd / Path(named).expanduser()
            if not path.exists() or path.is_dir():
                raise SettingsError([f"{named}: there is no such file ({by})"])
            return path
    home = env.get("XDG_CONFIG_HOME") or (f"{env['HOME']}/.config" if env.get("HOME") else "")
    places = [cwd / "gpuwatch.toml", *([Path(home, "gpuwatch", "gpuwatch.toml")] if home else [])]
    return next((path for path in [*places, Path("/etc/gpuwatch/gpuwatch.toml")] if os.path.isfile(path)), None)


def parse_file(sources: Sources) -> dict[str, Any]:
    """The file's tables; numbers with a point are exact Decimals.

    Raises:
        SettingsError: it is no TOML; one line with its line number.
    """
    if not sources.content.strip():
        return {}
    import tomllib  # noqa: PLC0415 not every start parses the file
    from decimal import Decimal  # noqa: PLC0415

    try:
        text = sources.content.decode("utf-8-sig")
        return tomllib.loads(text, parse_float=Decimal)
    except UnicodeDecodeError as error:
        line = sources.content.count(b"\n", 0, error.start) + 1
        raise SettingsError([f"{sources.shown}:{line}: expected UTF-8 text"]) from None
    except (tomllib.TOMLDecodeError, ValueError, ArithmeticError, RecursionError) as error:
        raise SettingsError([_syntax_fault(sources, text, error)]) from None


def merge(
    file_tree: dict[str, Any], sources: Sources, unreadable: UnreadableValues | None = None
) -> tuple[dict[str, Any], dict[KeyPath, ExternalValue]]:
    """The file's tables with everything given outside laid over them, and where each such value came from.

    Args:
        lost: filled with what could not be laid over them; None: that is a fault.

    Raises:
        SettingsError: a value given for a whole table is no JSON.
    """
    tree = file_tree
    origins: dict[KeyPath, ExternalValue] = {}
    faults: UnreadableValues = []
    for one in sorted(sources.given, key=lambda given: len(given.path)):
        try:
            value = _value(one)
        except ValueError as error:
            faults.append((one.path, f"{one.label}: {'.'.join(one.path)}: {error}"))
            continue
        if not _set_value(tree, one.path, value):
            above = f"expected a table above it; set {variable_of(one.path[:1])} as JSON"
            faults.append((one.path, f"{one.label}: {'.'.join(one.path)}: {above}"))
        origins[one.path] = one
    _raise_or_keep(faults, unreadable)
    return tree, origins


def _raise_or_keep(faults: UnreadableValues, unreadable: UnreadableValues | None) -> None:
    """Without the file, or the database that is meant, nothing is right; the rest may be lost."""
    if unreadable is None or any(path in _NEEDED for path, _ in faults):
        if faults:
            raise SettingsError([line for _, line in faults])
    else:
        unreadable += faults


def variable_of(path: KeyPath) -> str:
    """The environment variable of a key."""
    return PREFIX + "__".join(path).upper()


def from_outside(path: KeyPath, origins: Mapping[KeyPath, ExternalValue]) -> bool:
    """Did the environment or a credential set this key, or a table above it?"""
    return any(path[:length] in origins for length in range(1, len(path) + 1))


def is_secret(path: KeyPath, value: str) -> bool:
    """Is this a key, token, password or address that holds one?"""
    return path[-1] in _SECRET_KEYS and (path[-1] != "database_url" or "@" in value)


def _value(one: ExternalValue) -> Any:
    is_table = len(one.path) == 1 and one.path[0] in {"budget", "providers", "record", "notify", "watch"}
    is_below = len(one.path) == 2 and one.path[0] in {"providers", "notify"}
    if is_table or is_below or (len(one.path) == 3 and one.path[0] == "providers" and one.path[2] == "options"):
        return plain_json(one.text)
    return EnvText(one.text)


def _set_value(tree: dict[str, Any], path: KeyPath, value: Any) -> bool:
    for part in path[:-1]:
        below = tree.setdefault(part, {})
        if part == "commission" and not isinstance(below, dict):
            below = tree[part] = {"rate": below}  # a bare number is its rate
        if not isinstance(below, dict):
            return False
        tree = below
    old = tree.get(path[-1])
    if isinstance(old, dict) and isinstance(value, dict):
        return all(_set_value(old, (key,), one) for key, one in value.items())
    tree[path[-1]] = value
    return True


def _variables(
    env: Mapping[str, str], cwd: Path, aliases: Mapping[str, KeyPath], place: str, faults: UnreadableValues
) -> Iterator[ExternalValue]:
    """The ecosystem's names first: gpuwatch's own names win over them."""
    for name in sorted(env, key=lambda name: (name.startswith(PREFIX), name)):
        path, is_file = _path_of(name, aliases)
        if path is None or not env[name]:
            continue
        text: str | None = env[name]
        file = str(cwd / ".env") if place else ""
        if is_file:
            if env.get(name.removesuffix("_FILE")):
                either = f"{place}{name}: expected either it or {name.removesuffix('_FILE')}, not both"
                faults.append((path, either))
                continue
            file = str(cwd / env[name])
            text = _secret(path, Path(file), f"{place}{name}", faults)
        if text is not None:
            yield ExternalValue(path, text, f"{place}{name}", "env", file)


def _secret(path: KeyPath, file: Path, label: str, faults: UnreadableValues) -> str | None:
    told: list[str] = []
    text = read_secret(file, label, told)
    faults += [(path, line) for line in told]
    return text


def _path_of(name: str, aliases: Mapping[str, KeyPath]) -> tuple[KeyPath | None, bool]:
    bare = name.removesuffix("_FILE")
    if name in aliases or bare in aliases:
        return aliases[bare] if bare in aliases else aliases[name], bare != name
    if not name.startswith(PREFIX) or name.startswith(NOT_SETTINGS) or _SERVICE_LINK.fullmatch(name):
        return None, False
    path = tuple(name.removeprefix(PREFIX).lower().split("__"))
    if bare != name and path[-1].removesuffix("_file") in _SECRET_KEYS:
        return tuple(bare.removeprefix(PREFIX).lower().split("__")), True
    return path, False


def _credentials(
    env: Mapping[str, str], aliases: Mapping[str, KeyPath], faults: UnreadableValues
) -> Iterator[ExternalValue]:
    """systemd's credentials: files named as the variables, small: `gpuwatch_vast_api_key`."""
    folder = env.get("CREDENTIALS_DIRECTORY")
    if not folder:
        return
    known: dict[str, KeyPath] = {
        PREFIX.lower() + alias.removeprefix(PREFIX).lower(): path for alias, path in aliases.items()
    }
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return  # systemd sets it only with credentials; elsewhere a missing folder holds none
    for name in sorted(names, key=lambda name: (name not in known, name)):
        path = known.get(name) or _credential_path(name)
        if path is None:
            faults += [((), line) for line in _stray_credential(name, known)]
            continue
        text = _secret(path, Path(folder, name), f"credential {name}", faults)
        if text is not None:
            yield ExternalValue(path, text, f"credential {name}", "credential", os.path.join(folder, name))


def _credential_path(name: str) -> KeyPath | None:
    if not name.startswith(PREFIX.lower()):
        return None
    path = tuple(name.removeprefix(PREFIX.lower()).lower().split("__"))
    return path if path[-1] in _SECRET_KEYS else None


def _stray_credential(name: str, known: Collection[str]) -> Iterator[str]:
    """A misspelt one would leave its provider without a key; an editor's leftovers (`…~`, `….bak`) do no harm."""
    if not re.fullmatch(r"gpuwatch_[a-z0-9_]+", name):
        return
    from difflib import get_close_matches  # noqa: PLC0415 for this fault alone

    near = get_close_matches(name, known, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]}?" if near else "expected a secret's variable in small letters"
    yield f"credential {name}: no setting has that name; {hint}"


def _read_dotenv(cwd: Path) -> dict[str, str]:
    path = cwd / ".env"
    if not os.path.isfile(path):
        return {}
    import io  # noqa: PLC0415 most starts have no .env

    from dotenv import dotenv_values  # noqa: PLC0415

    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise SettingsError([f"{path}: cannot be read: {error.strerror}"]) from None
    except UnicodeDecodeError:
        raise SettingsError([f"{path}: expected UTF-8 text"]) from None
    found = dotenv_values(stream=io.StringIO(text), interpolate=False)
    return {name: value for name, value in found.items() if value is not None and _NAME.fullmatch(name)}


def _read_file(file: Path | None, faults: UnreadableValues) -> bytes:
    if file is None:
        return b""
    try:
        with open(file, "rb") as opened:
            content = opened.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        faults.append((_THE_FILE, f"{file}: cannot be read: {error.strerror}"))
        return b""
    if len(content) > MAX_FILE_BYTES:
        faults.append((_THE_FILE, f"{file}: expected a file of at most 4 MiB"))
    return content


def _syntax_fault(sources: Sources, text: str, error: Exception) -> str:
    found = re.search(r"\(at line (\d+), column (\d+)\)", str(error))
    line = int(found[1]) if found else text.count("\n") + 1
    what = str(error).split(" (at ")[0].split(":")[0]
    what = re.sub(r"'[^']*'|\"[^\"]*\"", "…", what)  # never a value
    return f"{sources.shown}:{line}: no valid TOML: {what[:1].lower()}{what[1:]}"
