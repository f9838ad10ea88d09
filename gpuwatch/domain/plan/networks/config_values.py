"""The values of a network's config.json, checked. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec

_MOST: Final = 10**6


class NetworkConfig(msgspec.Struct, frozen=True):
    """The fields of a config.json."""

    fields: Mapping[str, Any]

    def whole(self, name: str, default: int | None = None) -> int:
        """A whole number. Raises ValueError: it is missing or impossible."""
        value = self.fields.get(name)
        if value is None:
            value = default
        least = 0 if default == 0 else 1
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MOST:
            raise ValueError(f"{name}: expected a whole number above 0")
        return value

    def wholes(self, name: str, default: list[int] | None = None) -> list[int]:
        """Whole numbers. Raises ValueError."""
        value = self.fields.get(name) or default
        if not isinstance(value, list) or not 1 <= len(value) <= 64 or not all(_is_size(one) for one in value):
            raise ValueError(f"{name}: expected a list of whole numbers above 0")
        return value

    def each(self, name: str, count: int, default: int) -> list[int]:
        """A whole number for each of `count`, or one for all. Raises ValueError."""
        value = self.fields.get(name)
        if not isinstance(value, list):
            return [self.whole(name, default)] * count
        if len(value) != count:
            raise ValueError(f"{name}: expected {count} whole numbers")
        return self.wholes(name)

    def texts(self, name: str, known: Collection[str]) -> list[str]:
        """Texts, all of them known. Raises ValueError: names one that is not."""
        value = self.fields.get(name)
        if not isinstance(value, list) or not value:
            raise ValueError(f"{name}: expected a list of texts")
        for one in value:
            if one not in known:
                raise ValueError(f"{name}: {str(one)[:40]} is not understood; expected {' or '.join(sorted(known))}")
        return value


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MOST
