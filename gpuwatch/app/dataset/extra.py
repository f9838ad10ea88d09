"""The libraries of the extra `dataset`, imported when they are needed and not before."""

from __future__ import annotations

import importlib
from typing import Any

from gpuwatch.errors import UsageError


def import_extra(module: str, install: str = "'gpuwatch[dataset]'") -> Any:
    """A module that may not be there.

    Raises:
        UsageError: it is not installed; the line says how to have it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as fault:
        missing = (fault.name or module).partition(".")[0]
        raise UsageError(f"this wants {missing}, which is not installed: pip install {install}") from fault
