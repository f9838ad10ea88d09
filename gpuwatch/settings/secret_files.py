"""Secrets in files: what `<VAR>_FILE` names, and systemd's credentials."""

from __future__ import annotations

from pathlib import Path

MAX_BYTES = 64 * 1024


def read_secret(path: Path, label: str, faults: list[str]) -> str | None:
    """A file's text without byte order mark and trailing newlines; None: a fault was added, which never quotes it."""
    try:
        with open(path, "rb") as opened:
            content = opened.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "not a file name"
        faults.append(f"{label}: the secret file {path} cannot be read: {why}")
        return None
    try:
        text = content.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError:
        faults.append(f"{label}: the secret file {path} is no UTF-8 text")
        return None
    if not text.strip() or len(content) > MAX_BYTES or "\x00" in text:
        what = "is empty" if not text.strip() else "is no secret: too long, or binary"
        faults.append(f"{label}: the secret file {path} {what}")
        return None
    return text
