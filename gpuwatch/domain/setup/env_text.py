"""Values from the environment: text that represents a number, a switch or JSON, depending on its key."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any, Final

EXPECTED_JSON: Final = 'expected JSON, such as ["a", "b"] or {"key": 1}'


class EnvText(str):
    """Text from the environment, not yet converted to the type of its key."""

    __slots__ = ()


def plain_json(text: str) -> Any:
    """Parse JSON with exact numbers.

    Raises:
        ValueError: the text is not JSON; the message states what was expected and never quotes the text.
    """
    try:
        return json.loads(text, parse_float=Decimal, parse_constant=Decimal)
    except (ValueError, RecursionError, ArithmeticError):
        raise ValueError(EXPECTED_JSON) from None
