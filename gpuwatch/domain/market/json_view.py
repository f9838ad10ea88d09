"""Views: what commands, pages, chats and other programs see of a thing; each key declared once, with its type. Pure.

The fields of a view are the keys of its JSON, in that order. The API's document takes types and descriptions from them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, Self, overload

import msgspec

from gpuwatch.domain.market.money import MICRO

Moment = Annotated[datetime, msgspec.Meta(tz=True)]


class JsonView(msgspec.Struct, frozen=True, kw_only=True):
    """The base of all views. A field whose default is UNSET is a key that only some items have."""

    @classmethod
    def of(cls, *sources: object, **given: Any) -> Self:
        """Build a view.

        Args:
            sources: a field that is not given has the value of the attribute of that name of the first source with
                one; a field in dollars (`price_usd_hour`) may be whole micro-dollars there (`price_microusd_hour`).
            given: the fields that no source has under their names.
        """
        values = ((name, given[name] if name in given else _found(sources, name)) for name in cls.__struct_fields__)
        return cls(**{name: _as_shown(value) for name, value in values if value is not msgspec.UNSET})

    def json(self) -> dict[str, Any]:
        """Return its JSON, to which keys may be added."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


def _found(sources: tuple[object, ...], name: str) -> Any:
    for source in sources:
        value = getattr(source, name, msgspec.UNSET)
        if value is not msgspec.UNSET:
            return value
        amount = getattr(source, name.replace("usd", "microusd"), msgspec.UNSET)
        if amount is not msgspec.UNSET:
            return None if amount is None else amount / MICRO
    return msgspec.UNSET


def _as_shown(value: Any) -> Any:
    """Times are shown in UTC, to the second."""
    if isinstance(value, tuple):
        return tuple(map(_as_shown, value))
    return value.astimezone(UTC).replace(microsecond=0) if isinstance(value, datetime) else value


def usd_number(microusd: int | None) -> float | None:
    """Micro-dollars as a JSON number; None stays None."""
    return None if microusd is None else microusd / MICRO


@overload
def rfc3339(moment: datetime) -> str: ...


@overload
def rfc3339(moment: datetime | None) -> str | None: ...


def rfc3339(moment: datetime | None) -> str | None:
    """A time in UTC with `Z`, to the second."""
    return None if moment is None else moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def number(amount: Decimal | float | int | None) -> float | None:
    """Money or a measure as a JSON number."""
    return None if amount is None else float(amount)
