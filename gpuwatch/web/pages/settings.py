"""Settings: every current value and its origin; secrets masked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuwatch.errors import SettingsError
from gpuwatch.web.page import Page, View


def _show(view: View) -> Mapping[str, Any]:
    from gpuwatch.app.config import settings_json  # noqa: PLC0415 pydantic, only when needed
    from gpuwatch.settings.show import origins  # noqa: PLC0415

    wanted = view.query.get("q", "").strip()
    try:
        found, faults = settings_json(*origins(view.owner.config)), []
    except SettingsError as error:  # of the file as it is now; the old settings are still in use
        found, faults = {"source_file": view.owner.config, "settings": []}, list(error.faults)
    rows = [one for one in found["settings"] if wanted.casefold() in one["key"].casefold()]
    only_set = view.query.get("all") != "yes"
    return {
        "file": found["source_file"],
        "faults": faults,
        "rows": [one for one in rows if one["origin"] != "default" or not only_set or wanted],
        "count": len(rows),
        "asked": {"q": wanted, "all": "" if only_set else "yes"},
    }


PAGE = Page(name="Settings", path="/settings", template="settings.html", show=_show, order=80)
