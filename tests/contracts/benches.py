"""Every provider's `tests/providers/NAME/bench.py`, for the suites that all of them must pass."""

from __future__ import annotations

import runpy
import traceback

from gpuwatch.testing import Bench
from gpuwatch.testing.suite import Suite
from tests.checkout import TESTS

_PROVIDERS = TESTS / "providers"

BROKEN: dict[str, str] = {}  # a bench that cannot be loaded must not hide the others


def _loaded() -> dict[str, Bench]:
    found = {}
    for script in sorted(_PROVIDERS.glob("*/bench.py")):
        try:
            found[script.parent.name] = runpy.run_path(str(script))["BENCH"]
        except Exception:
            BROKEN[script.parent.name] = traceback.format_exc()
    return found


BENCHES = _loaded()


def classes(suite: type[Suite], benches: dict[str, Bench]) -> dict[str, type]:
    """Return one test class for each bench, named like `Test_vastai`."""
    return {f"Test_{name}": type(f"Test_{name}", (suite,), {"bench": bench}) for name, bench in benches.items()}
