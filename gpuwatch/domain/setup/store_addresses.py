"""Addresses in object stores, as jobs name them: `s3://BUCKET/FOLDER`, `rclone:REMOTE:FOLDER`. Pure."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator

_REMOTE = re.compile(r"rclone:[A-Za-z0-9_][\w.+@-]{0,63}:[^\x00-\x1f]*")
_BUCKET = re.compile(r"s3://[A-Za-z0-9][A-Za-z0-9.-]{1,62}(/[^\x00-\x1f]*)?")
EXPECTED_STORE = "expected s3://BUCKET/FOLDER or rclone:REMOTE:FOLDER, without keys or options"


def is_remote(address: str) -> bool:
    """Whether a source or target is an address for the local rclone; it may still be invalid."""
    return address.startswith("rclone:")


def is_store(address: str) -> bool:
    """Whether results or checkpoints can be stored there."""
    return _REMOTE.fullmatch(address) is not None or _BUCKET.fullmatch(address) is not None


def _store(value: Any) -> str:
    if not isinstance(value, str) or not is_store(value):
        raise ValueError(EXPECTED_STORE)
    return value


Store = Annotated[str, BeforeValidator(_store)]
