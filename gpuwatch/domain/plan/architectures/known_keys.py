"""Keys of a config.json that do not change the size of its model, so that all others can be named."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from gpuwatch.domain.plan.architectures.model_keys import ConfigKeys

_SHOWN: Final = 12
_NOTHING: tuple[Any, ...] = (None, False, 0, 0.0, "", [], {})


def unknown_keys(keys: ConfigKeys, fields: Mapping[str, Any]) -> list[str]:
    """The keys of a text model that were neither read nor are known to be harmless; only those with a value.

    Args:
        fields: the outermost level, if it is the text model's own.
    """
    harmless = harmless_keys()
    names = [
        name
        for name, value in {**fields, **keys.fields}.items()
        if name not in keys.read and name not in harmless and value not in _NOTHING and not name.startswith("_")
    ]
    return [name[:60] for name in sorted(names)[:_SHOWN]]


@cache
def harmless_keys() -> frozenset[str]:
    """Keys of names, dropout, initialisation, positions, routing, generation and the like."""
    path = os.path.join(os.path.dirname(__file__), "harmless-config-keys.txt")
    lines = __spec__.loader.get_data(path).decode().splitlines()  # type: ignore[union-attr]
    return frozenset(word for line in lines if not line.startswith("#") for word in line.split())
