"""Every start reads the declarations of all providers: it takes few milliseconds, and must not take more."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
from gpuwatch import providers
before = set(sys.modules)
for name in providers.names():
    providers.info(name)
print(*(name for name in set(sys.modules) - before if not name.startswith("gpuwatch.")))
"""
SMALL = {"_struct", "base64", "binascii", "shlex", "struct"}  # for start scripts


def test_reading_what_providers_say_imports_nothing_but_modules_of_gpuwatch() -> None:
    """A provider that uses HTTP, archives or a library imports them when it is built."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True)
    assert set(done.stdout.split()) <= SMALL
