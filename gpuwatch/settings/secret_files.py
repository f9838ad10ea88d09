"""Secrets in files: what `<VAR>_FILE` and `from_file` name, and systemd's credentials."""

from __future__ import annotations

from pathlib import Path

MAX_BYTES = 64 * 1024


def read_secret(path: Path, label: str, faults: list[str]) -> str | None:
    """A file's text without byte order mark and trailing newlines; None: a fault was added, which never quotes it."""
    try:
        return secret_text(path)
    except ValueError as error:
        faults.append(f"{label}: the secret file {path} {error}")
        return None


def secret_text(path: Path) -> str:
    """A file's text without byte order mark and trailing newlines.

    Raises:
        ValueError: what is wrong with it, as the rest of a sentence that begins with the file; it quotes nothing.
    """
    try:
        with open(path, "rb") as opened:
            content = opened.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "not a file name"
        raise ValueError(f"cannot be read: {why}") from None
    try:
        text = content.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError:
        raise ValueError("is no UTF-8 text") from None
    if not text.strip():
        raise ValueError("is empty")
    if len(content) > MAX_BYTES or "\x00" in text:
        raise ValueError("is no secret: too long, or binary")
    return text
