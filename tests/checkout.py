"""Where this checkout lies: a test finds its files from here, so that it may move."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
