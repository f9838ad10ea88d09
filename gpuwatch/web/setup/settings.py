"""Settings: every current value and its origin; secrets masked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuwatch.errors import SettingsError
from gpuwatch.web.page import Page, View


def _show_settings(view: View) -> Mapping[str, Any]:
    from gpuwatch.app.setup.config import settings_json  # noqa: PLC0415 pydantic, only when needed
    from gpuwatch.settings.show import origins  # noqa: PLC0415

    search_text = view.query.get("q", "").strip()
    try:
        values, faults = settings_json(*origins(view.owner.config)), []
    except SettingsError as error:  # of the file as it is now; the old settings are still in use
        values, faults = {"source_file": view.owner.config, "settings": []}, list(error.faults)
    rows = [row for row in values["settings"] if search_text.casefold() in row["key"].casefold()]
    only_set = view.query.get("all") != "yes"
    return {
        "file": values["source_file"],
        "faults": faults,
        "rows": [row for row in rows if row["origin"] != "default" or not only_set or search_text],
        "count": len(rows),
        "asked": {"q": search_text, "all": "" if only_set else "yes"},
    }


SETTINGS_PAGE = Page(name="Settings", path="/settings", template="settings.html", show=_show_settings, order=80)
