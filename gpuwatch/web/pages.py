"""All pages: each `Page` at the top of a module named `…_page` or `…_pages`; it is registered nowhere else."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import walk_packages

from gpuwatch import web
from gpuwatch.web.page import Page


@cache
def pages() -> tuple[Page, ...]:
    """Return every page, in the order of the links."""
    names = [info.name for info in walk_packages(web.__path__, f"{web.__name__}.")]
    modules = [import_module(name) for name in names if name.endswith(("_page", "_pages"))]
    found = {value.path: value for module in modules for value in vars(module).values() if isinstance(value, Page)}
    return tuple(sorted(found.values(), key=lambda page: page.order))


@cache
def nav() -> tuple[Page, ...]:
    """Return the pages in the navigation."""
    return tuple(page for page in pages() if page.in_nav)
