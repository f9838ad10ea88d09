"""The field types of the settings: strict in a file, lenient with text from the environment."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping
from copy import copy
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

import msgspec
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    PlainValidator,
    StrictBool,
    StrictInt,
    WithJsonSchema,
    create_model,
    field_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core.core_schema import CoreSchema, no_info_after_validator_function

from gpuwatch.domain.setup.durations import DURATION_PATTERN, EXPECTED_JSON, EnvText, parse_duration
from gpuwatch.secret import Secret

MAX_USD = Decimal(1_000_000)  # anything larger is a typo
MOST_DECIMALS = 30  # money is compared in exact fractions, and 1e-999999 would be a very long one
MAX_MEASURE = Decimal(10**9)
_TRUE = {"true", "1", "yes", "on"}
_FALSE = {"false", "0", "no", "off"}

_NUMBER: dict[str, Any] = {"type": "number"}
_SPAN: dict[str, Any] = {"type": "string", "pattern": DURATION_PATTERN, "examples": ["90s", "15m", "6h", "2d", "1h30m"]}


class UnknownName(ValueError):
    """A GPU or a region that the catalogue lacks; the store may have it, as a provider reported it."""


class Table(BaseModel):
    """Base of all tables of the settings: no unknown keys, and no values in error messages."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True, frozen=True, validate_default=False)
    unused_keys: ClassVar[frozenset[str]] = frozenset()  # inherited ones without effect: refused, and in no list

    @field_validator("*", mode="before")
    @classmethod
    def _from_env(cls, value: Any, info: Any) -> Any:
        return read_env_text(value, cls.model_fields[info.field_name].annotation)


class Spec(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A value of gpuwatch that an owner writes as a table: each key is declared once, on its field.

    Its type says how it is read, `about` its help and its bounds. Its key is its name, without the `_s` of a duration,
    unless `Key` gives another one. A field without help is no key: it is computed from the others.
    pydantic validates a table into the value itself; schema, documents, forms and `config show` read `table_of`.
    The program makes such values without validation, as any other struct.
    """

    Keys: ClassVar[type] = object  # declares the keys that no field holds as they are written

    @classmethod
    def computed(cls, table: Any) -> dict[str, Any]:
        """The fields that are no keys, from the validated table. Raises ValueError: keys contradict each other."""
        del table
        return {}

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        del source
        return no_info_after_validator_function(cls.of, handler.generate_schema(table_of(cls)))

    @classmethod
    def of(cls, table: Table, **others: Any) -> Self:
        """The value of a validated table.

        Args:
            others: fields that are no keys, if more than the table decides about them.
        """
        computed = cls.computed(table) | others
        keys = {field.name: getattr(table, key) for key, field in _fields(cls).items() if field.name not in computed}
        return cls(**keys, **computed)


class Key(NamedTuple):
    """The key of a field of a `Spec`, where that is not its name."""

    name: str


def about(text: str, **bounds: Any) -> Any:
    """What a field of a `Spec` declares: its help, and its bounds as pydantic has them."""
    return Field(description=text, **bounds)


@cache
def table_of(spec: type[Spec]) -> type[Table]:
    """The table that an owner writes for a value: its keys in the order of their declaration."""
    fields = {field.name: (key, field) for key, field in _fields(spec).items()}
    keys: dict[str, Any] = {}
    for name in spec.__struct_fields__:
        if name in fields:
            key, field = fields[name]
            keys[key] = _declared(field.type, ... if field.default is msgspec.NODEFAULT else field.default)
        else:  # computed, from keys that no field holds
            written = typing.get_type_hints(spec.Keys, include_extras=True)
            keys |= {key: _declared(hint, getattr(spec.Keys, key, ...)) for key, hint in written.items()}
    return create_model(spec.__name__, __base__=Table, __doc__=spec.__doc__, **keys)


def _declared(hint: Any, default: Any) -> Any:
    """A key with its default, which JSON Schema has as plain values."""
    if isinstance(default, Spec | dict):
        plain = {"default": msgspec.to_builtins(default)}
        return hint, Field(default_factory=lambda: default, json_schema_extra=plain)
    return hint, default


def table_with(spec: type[Spec], defaults: Mapping[str, Any], **keys: Any) -> type[Table]:
    """The table of a value with other defaults, and with other types of some keys, given as for `create_model`."""
    table = table_of(spec)
    for key, default in defaults.items():
        field = copy(table.model_fields[key])
        field.default, field.default_factory = default, None
        keys[key] = (field.annotation, field)
    return create_model(spec.__name__, __base__=table, **keys)


@cache
def _fields(spec: type[Spec]) -> Mapping[str, msgspec.structs.FieldInfo]:
    """Key → field, of the fields that are keys."""
    keys = {}
    for field in msgspec.structs.fields(spec):
        info = FieldInfo.from_annotation(field.type)
        if info.description:
            key = next((one.name for one in info.metadata if isinstance(one, Key)), field.name.removesuffix("_s"))
            keys[key] = field
    return keys


class Written:
    """Annotates a value with the table that an owner writes for it, where that says more than the value keeps.

    Args:
        value: makes the value of a validated table. Raises ValueError.
    """

    def __init__(self, table: type[Table], value: Callable[[Any], Any]) -> None:
        self.table, self._value = table, value

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        del source
        return no_info_after_validator_function(self._value, handler.generate_schema(self.table))


def keys_of(table: type[BaseModel]) -> dict[str, FieldInfo]:
    """The keys of a table, as an owner writes them."""
    return {field.alias or name: field for name, field in table.model_fields.items()}


def is_secret(field: FieldInfo) -> bool:
    """Whether a key holds a secret."""
    extra = field.json_schema_extra
    return Secret in _kinds(field.annotation) or (isinstance(extra, dict) and bool(extra.get("writeOnly")))


def is_duration(field: FieldInfo) -> bool:
    """Whether a key is written as a duration, such as "15m", and held in seconds."""
    schemas = [part.json_schema for part in field.metadata if isinstance(part, WithJsonSchema)]
    return any(schema is not None and schema.get("type") == "string" for schema in schemas)


def models_in(annotation: Any) -> list[type[BaseModel]]:
    """The tables that a key accepts."""
    if isinstance(annotation, type) and issubclass(annotation, Spec):
        return [table_of(annotation)]
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if isinstance(annotation, Written):
        return [annotation.table]
    return [model for part in typing.get_args(annotation) for model in models_in(part)]


def read_env_text(value: Any, annotation: Any) -> Any:
    """Convert text from the environment to the type of its key; return anything else unchanged.

    Raises ValueError for bad JSON.
    """
    kinds = _kinds(annotation)
    return _read(str(value), kinds) if isinstance(value, EnvText) and Any not in kinds else value


def exact_number(value: Any) -> Decimal:
    """Return a finite number, exactly as written; booleans are rejected, and text but that of the environment."""
    if isinstance(value, EnvText):
        value = number_in(value.strip())
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise ValueError("expected a number")  # noqa: TRY004 - pydantic turns ValueErrors into faults
    found = value if isinstance(value, Decimal) else Decimal(repr(value))
    if not found.is_finite():
        raise ValueError("expected a finite number")
    if int(found.as_tuple().exponent) < -MOST_DECIMALS:
        raise ValueError(f"expected a number with at most {MOST_DECIMALS} decimals")
    return found


def seconds(value: Any) -> float:
    """Return a duration in seconds."""
    if not isinstance(value, str):
        raise ValueError('expected a duration in quotes, such as "90s", "15m" or "6h"')  # noqa: TRY004
    return parse_duration(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("expected text in quotes")  # noqa: TRY004
    if "\x00" in value:
        raise ValueError("expected text without NUL")
    return value


def line(value: Any) -> str:
    """Return one line of text without surrounding blanks."""
    value = _text(value).strip()
    if not value or not value.isprintable():
        raise ValueError("expected one non-empty line of text")
    return str(value)


def one_or_many(value: Any) -> Any:
    """Turn a single text into a list."""
    return [value] if isinstance(value, str) else value


def _strict_int(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("expected a whole number")  # noqa: TRY004
    return value


def _strict_bool(value: Any) -> Any:
    if not isinstance(value, bool):
        raise ValueError("expected true or false")  # noqa: TRY004
    return value


Text = Annotated[str, BeforeValidator(_text)]  # may be empty or have several lines
Line = Annotated[str, BeforeValidator(line), Field(max_length=500)]
Words = Annotated[tuple[Line, ...], BeforeValidator(one_or_many, json_schema_input_type=str | list[str])]
Lines = Annotated[Words, Field(min_length=1)]
Switch = Annotated[StrictBool, BeforeValidator(_strict_bool)]
Whole = Annotated[StrictInt, BeforeValidator(_strict_int)]
Number = Annotated[float, BeforeValidator(exact_number), WithJsonSchema(_NUMBER)]
Usd = Annotated[
    Decimal, BeforeValidator(exact_number), Field(gt=0, le=MAX_USD), WithJsonSchema(_NUMBER | {"exclusiveMinimum": 0})
]
UsdFrom0 = Annotated[
    Decimal, BeforeValidator(exact_number), Field(ge=0, le=MAX_USD), WithJsonSchema(_NUMBER | {"minimum": 0})
]
Span = Annotated[float, BeforeValidator(seconds), WithJsonSchema(_SPAN)]


def _second_or_more(value: Any) -> float:
    found = seconds(value)
    if found < 1:
        raise ValueError("expected a duration of at least 1s")
    return found


def _day_or_more(value: Any) -> float:
    found = seconds(value)
    if found < 86_400:
        raise ValueError("expected a duration of at least 1d")
    return found


SpanFrom1d = Annotated[float, BeforeValidator(_day_or_more), WithJsonSchema(_SPAN | {"examples": ["7d", "30d"]})]
SpanFrom1s = Annotated[float, BeforeValidator(_second_or_more), WithJsonSchema(_SPAN)]
Measure = Annotated[
    float, BeforeValidator(exact_number), Field(ge=0, le=MAX_MEASURE), WithJsonSchema(_NUMBER | {"minimum": 0})
]


def _kinds(annotation: Any) -> set[Any]:
    """The plain types that an annotation allows."""
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        return _kinds(typing.get_args(annotation)[0])
    if origin in {typing.Union, types.UnionType}:
        return set().union(*(_kinds(part) for part in typing.get_args(annotation)))
    if origin is Literal:
        return {str}
    return {origin or annotation}


def _read(text: str, kinds: set[Any]) -> Any:
    plain = text.strip()
    is_table = any(isinstance(kind, type) and issubclass(kind, BaseModel | Spec) for kind in kinds)
    if plain[:1] in {"[", "{"} and (is_table or tuple in kinds):
        raise ValueError(EXPECTED_JSON)  # if it were, its source would have decoded it
    if bool in kinds and plain.lower() in _TRUE | _FALSE:
        return plain.lower() in _TRUE
    return number_in(plain) if kinds & {int, float, Decimal} else text


def number_in(text: str) -> int | Decimal | str:
    """Return the number that a text is, exactly; any other text unchanged."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return Decimal(text)
    except InvalidOperation:
        return text


def _share(value: Any) -> Decimal:
    """A percentage in quotes, or a fraction."""
    value = number_in(value.strip()) if isinstance(value, EnvText) else value
    text = value.strip() if isinstance(value, str) else ""
    try:
        found = exact_number(Decimal(text.removesuffix("%"))) / 100 if text.endswith("%") else exact_number(value)
    except (InvalidOperation, ValueError):
        found = Decimal(-1)
    if not 0 <= found <= 1 or (found == 1 and not text):  # someone who writes 1 means 1 %
        raise ValueError('expected a percentage in quotes from "0%" to "100%", such as "1%"')
    return found


Share = Annotated[
    float,
    BeforeValidator(_share),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": r"^\s*[0-9]{1,3}(\.[0-9]+)?%\s*$"},
                {"type": "number", "minimum": 0, "maximum": 1},
            ]
        }
    ),
]


class Reference(Table):
    """`{ from_env = "NAME" }` or `{ from_file = "/run/secrets/name" }`: text that is not written in the file."""

    from_env: Line | None = Field(default=None, description="Environment variable with the text.")
    from_file: Line | None = Field(
        default=None, description="File with the text; a relative path is relative to the settings file."
    )


TEXT_OR_REFERENCE = str | Reference


def text_or_secret(value: Any, check: Callable[[str], str]) -> str | Secret:
    """A text, checked; valid references have already become checked secrets."""
    if isinstance(value, Secret):
        return value
    if not isinstance(value, str):
        raise ValueError(  # noqa: TRY004 pydantic turns ValueErrors into faults
            'expected text in quotes, { from_env = "NAME" } or { from_file = "/run/secrets/name" }'
        )
    return check(value)


def secret_of(check: Callable[[str], str]) -> PlainValidator:
    """The validator of a secret that is written as text or by reference."""

    def read(value: Any) -> Secret:
        found = text_or_secret(value, check)
        return found if isinstance(found, Secret) else Secret(found)

    return PlainValidator(read, json_schema_input_type=TEXT_OR_REFERENCE)
