"""What decoding a stranger's JSON can raise."""

from __future__ import annotations

from typing import Final

import msgspec

# Not JSON or not of the type; invalid UTF-8 inside a text; 200,000 nested lists.
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
