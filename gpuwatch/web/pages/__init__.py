"""The pages, one module and one template each. A module with `PAGE` here is a page; it is registered nowhere else."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from gpuwatch.web.page import Page


@cache
def pages() -> tuple[Page, ...]:
    """Return every page, in the order of the links."""
    modules = [import_module(f"{__name__}.{info.name}") for info in iter_modules(__path__)]
    return tuple(sorted((module.PAGE for module in modules if hasattr(module, "PAGE")), key=lambda page: page.order))


@cache
def nav() -> tuple[Page, ...]:
    """Return the pages in the navigation."""
    return tuple(page for page in pages() if page.in_nav)
