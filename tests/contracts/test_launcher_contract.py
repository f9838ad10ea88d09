"""The rules for every provider's launcher: the public suite, on every bench of a provider that rents."""

from __future__ import annotations

from benches import BENCHES, classes

from gpuwatch.testing.launcher import LauncherSuite

globals().update(classes(LauncherSuite, {name: bench for name, bench in BENCHES.items() if bench.info.launches}))
