"""Every provider's `tests/providers/NAME/bench.py`, for the suites that all of them must pass."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

_PROVIDERS = Path(__file__).parents[1] / "providers"

BENCHES: dict[str, dict[str, Any]] = {
    script.parent.name: runpy.run_path(str(script)) for script in sorted(_PROVIDERS.glob("*/bench.py"))
}
