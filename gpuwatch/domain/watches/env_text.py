"""Values from the environment: text that represents a number, a switch or JSON, depending on its key.

Separate from `fields`, so that the settings sources need not import pydantic.
"""

from __future__ import annotations

from typing import Any


class EnvText(str):
    """Text from the environment, not yet converted to the type of its key."""

    __slots__ = ()


def plain_json(text: str) -> Any:
    """Parse JSON with exact numbers.

    Raises:
        ValueError: the text is not JSON; the message states what was expected and never quotes the text.
    """
    import json  # noqa: PLC0415 rarely needed, and start-up time is measured
    from decimal import Decimal  # noqa: PLC0415

    try:
        return json.loads(text, parse_float=Decimal, parse_constant=Decimal)
    except (ValueError, RecursionError, ArithmeticError):
        raise ValueError('expected JSON, such as ["a", "b"] or {"key": 1}') from None
