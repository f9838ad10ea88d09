"""Values out of the environment: text that stands for a number, a switch, or JSON, as its key needs."""

from __future__ import annotations

from typing import Any


class EnvText(str):
    """Text that came out of the environment, not yet read as what its key needs."""

    __slots__ = ()


def plain_json(text: str) -> Any:
    """JSON with exact numbers.

    Raises:
        ValueError: it is none; the message says what was expected, and never quotes it.
    """
    import json  # noqa: PLC0415 rarely needed, and start-up is counted in milliseconds
    from decimal import Decimal  # noqa: PLC0415

    try:
        return json.loads(text, parse_float=Decimal, parse_constant=Decimal)
    except (ValueError, RecursionError, ArithmeticError):
        raise ValueError('expected JSON, such as ["a", "b"] or {"key": 1}') from None
