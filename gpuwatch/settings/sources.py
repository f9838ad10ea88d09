"""Where settings come from, as sources of pydantic-settings, which merges them; the tables keep their origins."""

from __future__ import annotations

import logging
import os
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Self

import msgspec
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from gpuwatch.domain.setup.durations import EnvText, plain_json
from gpuwatch.domain.setup.fields import Spec, models_in, number_in, table_of
from gpuwatch.errors import SettingsError
from gpuwatch.home_folder import expand_home, xdg_folder
from gpuwatch.settings.external_values import (
    ExternalValue,
    UnreadableValues,
    credential_values,
    read_dotenv,
    variable_values,
)
from gpuwatch.settings.model import Settings
from gpuwatch.settings.plugin_options import PREFIX, TOP_LEVEL, KeyPath, is_secret_key, variable_of

# Under PYDANTIC_SETTINGS_DEBUG the library would log what every source holds, secrets included.
logging.getLogger("pydantic_settings").setLevel(logging.INFO)
_FILE_PATH = ("",)  # not a key
_REQUIRED = frozenset({_FILE_PATH, ("database_url",)})


class MergedTables(BaseSettings):
    """The tables of given sources, merged by pydantic-settings, before anything is validated."""

    model_config = SettingsConfigDict(extra="allow", case_sensitive=True, env_prefix=PREFIX, env_nested_delimiter="__")

    def __init__(self, *, sources: Sequence[PydanticBaseSettingsSource]) -> None:
        super().__init__(sources=sources)

    @classmethod
    def from_sources(cls, *sources: PydanticBaseSettingsSource) -> Self:
        """The tables of these sources; one wins over those after it."""
        return cls(sources=sources)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The given sources alone, instead of the library's own (`gpuwatch.settings.sources`)."""
        assert isinstance(init_settings, InitSettingsSource)
        return tuple(init_settings.init_kwargs["sources"])


class ExternalSource(EnvSettingsSource):
    """Values from outside the file. The library nests them by their names and decodes lists and tables."""

    kind = ""  # of its values

    def __init__(self, values: Iterable[ExternalValue]) -> None:
        tables: Any = table_of(Settings)  # the library asks for a `BaseSettings`, and reads its fields
        super().__init__(tables, case_sensitive=True, env_prefix=PREFIX, env_nested_delimiter="__")
        values = [one for one in values if one.kind == self.kind]
        self.values = {one.path: one for one in sorted(values, key=lambda one: len(one.path))}
        self.env_vars = {_name(one): EnvText(one.text) for one in self.values.values()}
        self.tables: dict[str, Any] = {}

    def __call__(self) -> dict[str, Any]:
        """The tables; keys that the schema lacks are in them, so that it reports them."""
        self.tables = super().__call__()
        for name in {path[0] for path in self.values} - self.tables.keys():
            text = self.env_vars.get(PREFIX + name)
            below = self.explode_env_vars(name, FieldInfo.from_annotation(dict[str, Any]), self.env_vars)
            self.tables[name] = below if text is None else text
        return self.tables

    def field_is_complex(self, field: FieldInfo) -> bool:
        """Whether a key is written as JSON."""
        return super().field_is_complex(field) or bool(models_in(field.annotation))

    def next_field(self, field: FieldInfo | Any | None, key: str, case_sensitive: bool | None = None) -> Any:
        """The field of a key below another one; the library knows tables, and no values that are written as tables."""
        return _as_table(super().next_field(_as_table(field), key, case_sensitive))

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        """Lists and tables are JSON, with exact numbers; any other text is typed by its key, in the schema."""
        try:
            decoded = plain_json(value)
        except ValueError:
            return value
        if isinstance(decoded, dict):
            _commissions_as_tables({"": decoded})
            _commissions_as_tables(decoded)
        return decoded if isinstance(decoded, list | dict) else value


class Environment(ExternalSource):
    """`GPUWATCH_…` and `GPUWATCH_…_FILE`; the providers' own names of their keys, `VAST_API_KEY`, give way to them."""

    kind = "env"


class Dotenv(ExternalSource):
    """The same variables of `.env`."""

    kind = ".env"


class SystemdCredentials(ExternalSource):
    """systemd credentials."""

    kind = "credential"


class SettingsFile(InitSettingsSource):
    """The tables of `gpuwatch.toml`."""

    def __init__(self, tables: dict[str, Any]) -> None:
        super().__init__(MergedTables, tables)


EXTERNAL_SOURCES = (Environment, Dotenv, SystemdCredentials)  # the first that sets a key wins; then the settings file


class Sources(msgspec.Struct, frozen=True):
    """All that was read: the settings file, and the values outside it."""

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
    env, cwd = os.environ if env is None else env, cwd or Path.cwd()
    dotenv = read_dotenv(cwd)
    file = find_file(config, {**dotenv, **env}, cwd)
    errors: UnreadableValues = []
    content = b""
    try:
        content = read_file(file)
    except SettingsError as error:
        errors += [(_FILE_PATH, line) for line in error.faults]
    external = _external(env, dotenv, cwd, errors)
    _raise_or_collect(errors, unreadable)
    return Sources(file, content, external, env, cwd, dotenv)


def collect_draft(file: Path, content: bytes, new_variables: Mapping[str, str]) -> Sources:
    """The sources as they will be once this file has this content, for a gpuwatch that starts in its folder.

    Args:
        new_variables: those that `.env` will have in addition.
    """
    env, cwd = os.environ, file.parent.absolute()
    dotenv = {**read_dotenv(cwd), **new_variables}
    errors: UnreadableValues = []
    external = _external(env, dotenv, cwd, errors)
    _raise_or_collect(errors, None)
    return Sources(file, content, external, env, cwd, dotenv)


def _external(
    env: Mapping[str, str], dotenv: Mapping[str, str], cwd: Path, errors: UnreadableValues
) -> tuple[ExternalValue, ...]:
    """Every value outside the settings file; later ones count."""
    hidden = {name: text for name, text in dotenv.items() if name not in env}
    return (
        *credential_values(env, errors),
        *variable_values(hidden, cwd, errors, dotenv=True),
        *variable_values(env, cwd, errors),
    )


def parse_file(sources: Sources) -> dict[str, Any]:
    """The file's tables; decimal numbers are exact Decimals.

    Raises:
        SettingsError: it is not TOML; one line with its line number.
    """
    return parse_toml(sources.content, sources.display_name)


def merge_sources(
    file_tables: dict[str, Any], sources: Sources, unreadable: UnreadableValues | None = None
) -> tuple[dict[str, Any], dict[KeyPath, ExternalValue]]:
    """The tables of all sources, and the origin of every key that the file does not set.

    Args:
        unreadable: collects invalid values and ignores them; None: they are errors.

    Raises:
        SettingsError: a value for a whole table is not JSON, or a key is below one that is not a table.
    """
    _commissions_as_tables(file_tables.get("providers"))
    errors: UnreadableValues = []
    usable = []
    texts = {one.path for one in sources.external if not one.text.lstrip().startswith("{") and not _is_rate(one)}
    for one in sources.external:
        try:
            _check_shape(one, file_tables, texts)
            usable.append(one)
        except ValueError as error:
            errors.append((one.path, f"{one.label}: {'.'.join(one.path)}: {error}"))
    kinds = {one.kind for one in usable}  # the library reads every key of the settings in each source
    given: list[ExternalSource] = [source(usable) for source in EXTERNAL_SOURCES if source.kind in kinds]
    merged = MergedTables.from_sources(*given, SettingsFile(file_tables))
    _raise_or_collect(errors, unreadable)
    return merged.model_extra or {}, _origins(file_tables, given)


def _raise_or_collect(errors: UnreadableValues, unreadable: UnreadableValues | None) -> None:
    """The file and the database address are required; everything else may be ignored."""
    if unreadable is None or any(path in _REQUIRED for path, _ in errors):
        if errors:
            raise SettingsError([line for _, line in errors])
    else:
        unreadable += errors


def is_external(path: KeyPath, origins: Mapping[KeyPath, ExternalValue]) -> bool:
    """Was this key, or a table above it, set by the environment or a credential?"""
    return any(path[:length] in origins for length in range(1, len(path) + 1))


def has_secret(path: KeyPath, text: str) -> bool:
    """Is this a secret? A database URL only if it contains a password."""
    return is_secret_key(path) and (path != ("database_url",) or "@" in text)


def _check_shape(one: ExternalValue, file_tables: Mapping[str, Any], texts: Collection[KeyPath]) -> None:
    """A whole table must be JSON, and all above a key a table. Raises ValueError with what was expected."""
    match one.path:
        case (name,) if name in table_of(Settings).model_fields.keys() - TOP_LEVEL:
            plain_json(one.text)
        case ("notify", "quiet_hours"):
            pass
        case ("providers" | "notify", _) | ("providers", _, "options"):
            plain_json(one.text)
    above = [one.path[:length] for length in range(1, len(one.path))]
    if any(path in texts or not isinstance(_value_at(file_tables, path), dict | None) for path in above):
        raise ValueError(f"expected a table above it; set {variable_of(one.path[:1])} as JSON")


def _as_table(field: Any) -> Any:
    annotation = field.annotation if isinstance(field, FieldInfo) else field
    return table_of(annotation) if isinstance(annotation, type) and issubclass(annotation, Spec) else field


def _name(one: ExternalValue) -> str:
    """The variable's name, as the library nests it."""
    return PREFIX + "__".join((*one.path, "rate") if _is_rate(one) else one.path)


def _is_rate(one: ExternalValue) -> bool:
    """Is it a bare commission, which is its rate?"""
    is_commission = one.path[:1] + one.path[2:] == ("providers", "commission")
    return is_commission and not isinstance(number_in(one.text), str)


def _commissions_as_tables(providers: Any) -> None:
    """`commission = 0.2` becomes `{ rate = 0.2 }`: another source may add its mode."""
    for table in providers.values() if isinstance(providers, dict) else ():
        rate = table.get("commission") if isinstance(table, dict) else None
        if isinstance(rate, int | Decimal) and not isinstance(rate, bool):
            table["commission"] = {"rate": rate}


def _origins(file_tables: Mapping[str, Any], given: list[ExternalSource]) -> dict[KeyPath, ExternalValue]:
    """For each key, the value that set it; for each table that the file lacks, the value that made it."""
    origins: dict[KeyPath, ExternalValue] = {}
    for source in reversed(given):
        for path, is_table in _keys(source.tables):
            lengths = range(len(path), 0, -1)
            owner = next((source.values[path[:length]] for length in lengths if path[:length] in source.values), None)
            if owner is None or (is_table and isinstance(_value_at(file_tables, path), dict)):
                continue
            if not is_table:  # it replaces what a source of lower precedence set below it
                origins = {key: one for key, one in origins.items() if key[: len(path)] != path}
            origins[path] = owner
    return origins


def _keys(tables: Mapping[str, Any], above: KeyPath = ()) -> Iterator[tuple[KeyPath, bool]]:
    """Every key at any depth, and whether it is a table."""
    for name, value in tables.items():
        yield (*above, name), isinstance(value, dict)
        if isinstance(value, dict):
            yield from _keys(value, (*above, name))


def _value_at(tables: Any, path: KeyPath) -> Any:
    for part in path:
        tables = tables.get(part) if isinstance(tables, dict) else None
    return tables


# --- the settings file: where it is, its bytes, and its tables with exact numbers -------------------------------------


MAX_FILE_BYTES = 4 * 1024 * 1024


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


def read_file(file: Path | None) -> bytes:
    """Its content; empty without a file. Raises SettingsError: it cannot be read."""
    if file is None:
        return b""
    try:
        with open(file, "rb") as stream:
            content = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise SettingsError([f"{file}: cannot read the file: {error.strerror}"]) from None
    if len(content) > MAX_FILE_BYTES:
        raise SettingsError([f"{file}: expected a file of at most 4 MiB"])
    return content


def parse_toml(content: bytes, name: str) -> dict[str, Any]:
    """The file's tables; decimal numbers are exact Decimals.

    Raises:
        SettingsError: it is not TOML; one line with its line number.
    """
    try:
        text = content.decode("utf-8-sig")
        return tomllib.loads(text, parse_float=Decimal)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise SettingsError([f"{name}:{line}: expected UTF-8 text"]) from None
    except (tomllib.TOMLDecodeError, ValueError, ArithmeticError, RecursionError) as error:
        raise SettingsError([_syntax_error(name, text, error)]) from None


def _syntax_error(name: str, text: str, error: Exception) -> str:
    position = re.search(r"\(at line (\d+), column (\d+)\)", str(error))
    line = int(position[1]) if position else text.count("\n") + 1
    reason = str(error).split(" (at ")[0].split(":")[0]
    reason = re.sub(r"'[^']*'|\"[^\"]*\"", "…", reason)  # never show a value
    return f"{name}:{line}: not valid TOML: {reason[:1].lower()}{reason[1:]}"
