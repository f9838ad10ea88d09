"""Watches: each with its state, and links to edit one or write a new one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuwatch.app.watches.watch_status import watch_statuses
from gpuwatch.web.page import Page, View


def _show_watches(view: View) -> Mapping[str, Any]:
    return {"watches": watch_statuses(view.settings)}


WATCHES_PAGE = Page(name="Watches", path="/watches", template="watches.html", show=_show_watches, order=20)
