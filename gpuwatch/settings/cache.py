"""A cache of validated settings, without secrets: a start with unchanged settings needs no pydantic.

The file is in the user's cache folder, named by a SHA-256 over everything that validation depends on. If it is missing,
damaged or owned by another user, the settings are validated again.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import msgspec

import gpuwatch
from gpuwatch import notifiers, providers
from gpuwatch.home_folder import xdg_folder
from gpuwatch.settings.model import Settings
from gpuwatch.settings.own_file import read_private_file, write_private_file
from gpuwatch.settings.sources import Sources

MAX_FILES = 16  # maximum number of files; the oldest are deleted


class CachedSettings(msgspec.Struct, frozen=True, array_like=True):
    """One entry. `needs_file`: the settings file itself holds a secret."""

    settings: Settings
    needs_file: bool


def cache_key(sources: Sources, extra: bytes, known_spellings: Collection[str]) -> str:
    """The name of an entry: a hash of everything that validation depends on, including secrets."""
    digest = hashlib.sha256()
    for part in _parts(sources, extra, known_spellings):
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.hexdigest()


def load_cached(name: str, env: Mapping[str, str]) -> CachedSettings | None:
    """The entry of that name; None: there is no trusted entry."""
    folder = cache_folder(env)
    if folder is None:
        return None
    try:
        body = read_private_file(os.path.join(folder, _file_name(name)))
        return None if body is None else msgspec.msgpack.decode(body, type=CachedSettings)
    except (ValueError, TypeError, ArithmeticError, msgspec.MsgspecError):
        return None


def store_cached(name: str, env: Mapping[str, str], entry: CachedSettings) -> None:
    """Write an entry that only this user can read; errors are ignored."""
    folder = cache_folder(env)
    if folder is None:
        return
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.stat().st_uid != os.geteuid():
            return
        write_private_file(folder / _file_name(name), msgspec.msgpack.encode(entry))
        _prune(folder)
    except (OSError, TypeError, ValueError):
        return


def cache_folder(env: Mapping[str, str]) -> Path | None:
    """`$CACHE_DIRECTORY`, or the user's cache folder; None: there is none."""
    if env.get("CACHE_DIRECTORY"):
        return Path(env["CACHE_DIRECTORY"].split(":")[0])
    if (cache := xdg_folder(env, "XDG_CACHE_HOME")) is not None:
        return cache / "gpuwatch"
    return Path(env["HOME"], ".cache", "gpuwatch") if os.path.isabs(env.get("HOME", "")) else None


def _file_name(name: str) -> str:
    return f"settings-{name[:40]}.bin"


def _prune(folder: Path) -> None:
    newest_first = sorted(folder.glob("settings-*.bin"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    for path in newest_first[MAX_FILES:]:
        path.unlink(missing_ok=True)


def _parts(sources: Sources, extra: bytes, known_spellings: Collection[str]) -> Iterable[bytes]:
    yield f"{gpuwatch.__version__} {sys.version} {msgspec.__version__}".encode()
    yield _code()
    yield "\n".join((*providers.stamps(), *notifiers.stamps())).encode()
    yield os.fsencode(sources.file) if sources.file else b""
    yield sources.content
    yield extra
    for one in sources.external:
        yield repr((one.path, one.label)).encode()
        yield one.text.encode("utf-8", "surrogatepass")
    yield "\n".join(sorted(known_spellings)).encode("utf-8", "surrogatepass")


def _code() -> bytes:
    """Size and time of the validation code: a working copy changes without a new version."""
    package_folder = os.path.dirname(gpuwatch.__file__)
    validating = ("settings", "domain/watches", "domain/planning", "domain/market", "ports", "providers", "notifiers")
    folders = [os.path.join(package_folder, name) for name in validating]
    stamps = []
    for folder in folders:
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_file():
                        info = entry.stat()
                        stamps.append((entry.path, info.st_mtime_ns, info.st_size))
                    elif folder.endswith("providers") and not entry.name.startswith("_"):
                        folders.append(entry.path)
        except OSError:
            continue
    return repr(sorted(stamps)).encode()
