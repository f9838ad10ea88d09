"""Golden files: a recorded answer and gpuwatch's result for it. `make golden` writes them again.

A provider takes part with `tests/providers/NAME/replay.py`; its function `replay()` maps recorded files to their
results. The looks of alerts are in `tests/notifiers/samples.py`.
"""

from __future__ import annotations

import json
import runpy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from gpuwatch.errors import GpuwatchError
from tests.checkout import TESTS


def replayed_providers() -> list[str]:
    """Return the participating providers."""
    return sorted(script.parent.name for script in TESTS.glob("providers/*/replay.py"))


def replay(provider: str) -> Mapping[str, Any]:
    """Return recorded file → result, as JSON."""
    results = runpy.run_path(str(TESTS / "providers" / provider / "replay.py"))["replay"]()
    return {name: json.loads(msgspec.json.encode(value)) for name, value in results.items()}


def reported(read: Callable[[], Any]) -> Any:
    """Return a parser's result, or the error that it raises."""
    try:
        return read()
    except GpuwatchError as error:
        return shown(error)


def shown(error: GpuwatchError) -> Any:
    """Return an error as JSON, under the name of the first public one of its classes."""
    details = {name: value for name, value in vars(error).items() if value is not None}
    public = next(kind for kind in type(error).__mro__ if not kind.__name__.startswith("_"))
    return {"error": public.__name__, "text": str(error)} | msgspec.to_builtins(details)


def golden_path(provider: str, name: str) -> Path:
    """Return the path of the golden file of a recorded answer."""
    return TESTS / "recorded" / provider / "golden" / name


def write() -> None:
    """Write all golden files, and remove those without a recorded answer."""
    for provider in replayed_providers():
        results = replay(provider)
        folder = golden_path(provider, "x").parent
        folder.mkdir(exist_ok=True)
        for stale in set(folder.glob("*.json")) - {golden_path(provider, name) for name in results}:
            stale.unlink()
        for name, value in results.items():
            golden_path(provider, name).write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    from tests import setting_lines
    from tests.notifiers import samples
    from tests.providers import wire_requests
    from tools import reference_pages

    write()
    samples.write()
    setting_lines.write()
    wire_requests.write()
    reference_pages.write()
