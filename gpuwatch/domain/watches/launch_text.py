"""Checks of the texts of a launch. They may come from outside the settings file, so no schema is needed. Pure.

Every check returns the text, or raises ValueError with what was expected, without quoting the text.
"""

from __future__ import annotations

import re
from typing import Final

MAX_ONSTART = 4000  # characters; source: vast.ai refuses more than about 4,048
MAX_ONSTART_SELF_DESTRUCT = 2500  # less, because the lines with which an instance ends itself precede it
OWN_VARIABLES = ("GPUWATCH_LAUNCH_ID", "GPUWATCH_WATCH", "GPUWATCH_DEADLINE")  # set in every instance
_SHELL: Final = r"#!.*\b(?:ba|da|a|k|z)?sh\b.*"


def check_onstart(text: str) -> str:
    """A script: not empty and not too long."""
    if not text.strip() or "\x00" in text:
        raise ValueError("expected a non-empty script")
    if len(text) > MAX_ONSTART:
        raise ValueError(f"expected a script of at most {MAX_ONSTART} characters; let it download a longer one")
    return text


def check_self_destruct(text: str) -> str:
    """A script that shell lines can be prepended to."""
    first = text.partition("\n")[0].strip()
    if first.startswith("#!") and not re.fullmatch(_SHELL, first):
        raise ValueError("expected a shell script with self_destruct, which prepends shell lines")
    if len(text) > MAX_ONSTART_SELF_DESTRUCT:
        raise ValueError(
            f"expected a script of at most {MAX_ONSTART_SELF_DESTRUCT} characters with self_destruct, "
            "which prepends lines"
        )
    return text


def switch_or_auto(value: object) -> object:
    """true, false or "auto"."""
    if value != "auto" and not isinstance(value, bool):
        raise ValueError('expected true, false or "auto"')
    return value


def check_value(text: str) -> str:
    """The value of an environment variable."""
    if "\x00" in text:
        raise ValueError("expected text without NUL")
    return text


def check_word(text: str) -> str:
    """One word: marketplaces take a registry login as words separated by spaces, without quoting."""
    if not text or not text.isascii() or not text.isprintable() or set(text) & set(" \"'"):
        raise ValueError("expected printable ASCII without spaces and quotes")
    return text


def check_secret(text: str) -> str:
    """The secret that signs a webhook."""
    if not text or not text.isprintable():
        raise ValueError("expected one non-empty line of text")
    return text


def check_url(text: str) -> str:
    """The address of a webhook. It may contain a login, or be a secret itself."""
    from urllib.parse import urlsplit  # noqa: PLC0415 - start-up time is measured, and webhooks are rare

    wrong = ValueError('expected an http:// or https:// address, such as "https://hooks.example.org/gpuwatch"')
    if not text.isascii() or not text.isprintable() or " " in text:
        raise wrong
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        raise wrong from None
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.fragment:
        raise wrong
    return text
