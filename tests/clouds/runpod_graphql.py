"""The part of GraphQL that RunPod's clients use: one operation, aliases, arguments, nested fields, a fixed schema.

No fragments and no directives. An unknown field or input is refused like at the service, with 400.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, NamedTuple, Protocol

_TOKEN: Final = re.compile(r'\s*(?:#[^\n]*|,|("(?:\\.|[^"\\])*"|[A-Za-z_]\w*|-?\d+(?:\.\d+)?|[{}()\[\]:!$=]))')
_WORDS: Final = {"true": True, "false": False, "null": None}


class InvalidQuery(Exception):
    """The query cannot be answered: the whole answer is this error."""

    def __init__(self, message: str, code: str = "GRAPHQL_VALIDATION_FAILED", status: int = 400) -> None:
        super().__init__(message)
        self.error = {"message": message, "extensions": {"code": code}}
        self.status = status


class ResolverError(Exception):
    """A failed operation: an error in a 200, with null in place of the value."""


class Field(NamedTuple):
    """One requested field."""

    alias: str
    name: str
    arguments: Mapping[str, Any]
    fields: tuple[Field, ...]


class Schema(Protocol):
    """The schema: `types` maps a type to its fields, and these to their types ("" for a plain value)."""

    types: ClassVar[Mapping[str, Mapping[str, str]]]

    def resolve(self, type_name: str, parent: Any, field: Field) -> Any:
        """Return the value of a field. Raises Broken, Failed."""


def answered(query: str, variables: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    """Return the whole answer to a query or a mutation. Raises Broken."""
    kind, fields = _QueryReader(query, variables).operation()
    _check(fields, kind, schema)
    data: dict[str, Any] = {}
    errors = []
    for field in fields:
        try:
            data[field.alias] = _value(kind, None, field, schema)
        except ResolverError as failed:
            data[field.alias] = None
            errors.append({"message": str(failed), "path": [field.alias], "extensions": {"code": "RUNPOD"}})
    return ({"errors": errors} if errors else {}) | {"data": data}


def _check(fields: tuple[Field, ...], type_name: str, schema: Schema) -> None:
    for field in fields:
        known = schema.types[type_name]
        if field.name not in known:
            raise InvalidQuery(f'Cannot query field "{field.name}" on type "{type_name}".')
        leads_to = known[field.name]
        if bool(leads_to) is not bool(field.fields):
            raise InvalidQuery(f'Field "{field.name}" must{"" if leads_to else " not"} have a selection of subfields.')
        _check(field.fields, leads_to, schema)


def _value(type_name: str, parent: Any, field: Field, schema: Schema) -> Any:
    found = schema.resolve(type_name, parent, field)
    leads_to = schema.types[type_name][field.name]
    if not leads_to or found is None:
        return found
    if isinstance(found, list):
        return [_object(leads_to, one, field, schema) for one in found]
    return _object(leads_to, found, field, schema)


def _object(type_name: str, value: Any, field: Field, schema: Schema) -> Any:
    return {one.alias: _value(type_name, value, one, schema) for one in field.fields}


class _QueryReader:
    def __init__(self, text: str, variables: Mapping[str, Any]) -> None:
        self._variables = variables
        self._tokens = self._read(text)
        self._at = 0

    def operation(self) -> tuple[str, tuple[Field, ...]]:
        """Parse Query or Mutation, and its fields."""
        kind = "Query"
        if self._peek() in ("query", "mutation"):
            kind = self._next().capitalize()
            if self._peek() not in ("{", "("):
                self._next()  # its name
            if self._peek() == "(":
                self._until(")", self._next)  # types of variables: not checked
        return kind, self._fields()

    @staticmethod
    def _read(text: str) -> list[str]:
        tokens, at = [], 0
        text = text.strip()
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise InvalidQuery(f"Syntax Error: Unexpected character: {text[at]!r}.", "GRAPHQL_PARSE_FAILED")
            if found[1]:
                tokens.append(found[1])
            at = found.end()
        return tokens

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self, wanted: str | None = None) -> str:
        token = self._peek()
        if not token or (wanted is not None and token != wanted):
            raise InvalidQuery(
                f"Syntax Error: Expected {wanted or 'more'}, found {token or '<EOF>'}.", "GRAPHQL_PARSE_FAILED"
            )
        self._at += 1
        return token

    def _until(self, end: str, read: Callable[[], Any]) -> list[Any]:
        found = []
        self._at += 1  # what opens it
        while self._peek() != end:
            found.append(read())
        self._next(end)
        return found

    def _fields(self) -> tuple[Field, ...]:
        if self._peek() != "{":
            self._next("{")
        return tuple(self._until("}", self._field))

    def _field(self) -> Field:
        alias = name = self._next()
        if self._peek() == ":":
            self._next()
            name = self._next()
        arguments = dict(self._until(")", self._pair)) if self._peek() == "(" else {}
        return Field(alias, name, arguments, self._fields() if self._peek() == "{" else ())

    def _pair(self) -> tuple[str, Any]:
        name = self._next()
        self._next(":")
        return name, self._argument()

    def _argument(self) -> Any:
        word = self._peek()
        if word == "{":
            return dict(self._until("}", self._pair))
        if word == "[":
            return self._until("]", self._argument)
        self._next()
        if word == "$":
            return self._variables.get(self._next())
        if word[0] in '"-0123456789':
            return json.loads(word, strict=False)
        return _WORDS.get(word, word)
