"""Every start reads the declarations of all providers: it takes few milliseconds, and must not take more."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

from gpuwatch import providers

PROGRAM = """
import sys
from gpuwatch import providers
before = set(sys.modules)
for name in sys.argv[1:]:
    providers.info(name)
print(*set(sys.modules) - before)
"""
SMALL = {"_struct", "base64", "binascii", "shlex", "struct"}  # for start scripts


def _loaded_for(*names: str) -> set[str]:
    command = [sys.executable, "-c", PROGRAM, *names]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    return set(done.stdout.split())


def test_a_folder_is_declared_without_its_other_modules() -> None:
    """They are imported when the provider is built; a cloud that is one file is its own declaration."""
    folders = [
        found.name for found in pkgutil.iter_modules(providers.__path__) if found.ispkg and found.name != "toolkit"
    ]
    assert _loaded_for(*folders) <= {f"gpuwatch.providers.{name}" for name in folders}


def test_reading_what_providers_say_imports_nothing_but_modules_of_gpuwatch() -> None:
    """A provider that uses HTTP, archives or a library imports them when it is built."""
    loaded = {name for name in _loaded_for(*providers.names()) if not name.startswith("gpuwatch.")}
    assert loaded <= SMALL
