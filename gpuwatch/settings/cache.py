"""A cache of validated settings, without secrets: a start with the same settings needs no pydantic.

The file is in the user's cache folder, named by a SHA-256 over everything that validation depends on. If it is missing,
damaged or not the user's own, the settings are validated again.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import msgspec

import gpuwatch
from gpuwatch import notifiers, providers
from gpuwatch.settings.model import Settings
from gpuwatch.settings.sources import Sources

KEEP = 16  # files; the oldest go
_MAX_BYTES = 16 * 1024 * 1024
_SUM_BYTES = 32


class CachedSettings(msgspec.Struct, frozen=True, array_like=True):
    """One entry. `needs_file`: the settings file itself holds a secret."""

    settings: Settings
    needs_file: bool


def cache_key(sources: Sources, extra: bytes, known_spellings: Collection[str]) -> str:
    """The name of an entry: a hash of everything that validation depends on, secrets included."""
    summed = hashlib.sha256()
    for part in _parts(sources, extra, known_spellings):
        summed.update(len(part).to_bytes(8, "big"))
        summed.update(part)
    return summed.hexdigest()


def load_cached(name: str, env: Mapping[str, str]) -> CachedSettings | None:
    """The entry of that name; None: there is none that can be trusted."""
    folder = cache_folder(env)
    if folder is None:
        return None
    try:
        content = _read_own(os.path.join(folder, _file_name(name)))
        if content is None or hashlib.sha256(content[_SUM_BYTES:]).digest() != content[:_SUM_BYTES]:
            return None
        return msgspec.msgpack.decode(content[_SUM_BYTES:], type=CachedSettings)
    except (OSError, ValueError, TypeError, ArithmeticError, msgspec.MsgspecError):
        return None


def store_cached(name: str, env: Mapping[str, str], found: CachedSettings) -> None:
    """Write an entry that only this user can read; failing to is no error."""
    folder = cache_folder(env)
    if folder is None:
        return
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.stat().st_uid != os.geteuid():
            return
        _write(folder / _file_name(name), msgspec.msgpack.encode(found))
        _prune(folder)
    except (OSError, TypeError, ValueError):
        return


def cache_folder(env: Mapping[str, str]) -> Path | None:
    """`$CACHE_DIRECTORY`, or the user's cache folder; None: there is none."""
    if env.get("CACHE_DIRECTORY"):
        return Path(env["CACHE_DIRECTORY"].split(":")[0])
    if env.get("XDG_CACHE_HOME"):
        return Path(env["XDG_CACHE_HOME"], "gpuwatch")
    return Path(env["HOME"], ".cache", "gpuwatch") if env.get("HOME") else None


def _file_name(name: str) -> str:
    return f"settings-{name[:40]}.bin"


def _read_own(path: str) -> bytes | None:
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(handle, "rb") as opened:
        about = os.fstat(opened.fileno())
        mine = stat.S_ISREG(about.st_mode) and about.st_uid == os.geteuid() and not about.st_mode & 0o022
        return opened.read() if mine and about.st_size <= _MAX_BYTES else None


def _write(path: Path, body: bytes) -> None:
    """Atomic: two starts at the same time never see half an entry."""
    part = path.with_name(f".{path.stem}-{os.getpid()}.part")
    part.unlink(missing_ok=True)
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
    try:
        with os.fdopen(handle, "wb") as opened:
            opened.write(hashlib.sha256(body).digest() + body)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _prune(folder: Path) -> None:
    kept = sorted(folder.glob("settings-*.bin"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    for path in kept[KEEP:]:
        path.unlink(missing_ok=True)


def _parts(sources: Sources, extra: bytes, known_spellings: Collection[str]) -> Iterable[bytes]:
    yield f"{gpuwatch.__version__} {sys.version} {msgspec.__version__}".encode()
    yield _code()
    yield "\n".join((*providers.stamps(), *notifiers.stamps())).encode()
    yield os.fsencode(sources.file) if sources.file else b""
    yield sources.content
    yield extra
    for one in sources.given:
        yield repr((one.path, one.label)).encode()
        yield one.text.encode("utf-8", "surrogatepass")
    yield "\n".join(sorted(known_spellings)).encode("utf-8", "surrogatepass")


def _code() -> bytes:
    """Size and time of the code that validates: a working copy changes without its version."""
    home = os.path.dirname(gpuwatch.__file__)
    judging = ("settings", "domain/watches", "domain/planning", "domain/market", "ports", "providers", "notifiers")
    folders = [os.path.join(home, name) for name in judging]
    seen = []
    for folder in folders:
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir() and folder.endswith("providers") and not entry.name.startswith("_"):
                        folders.append(entry.path)
                    elif entry.is_file():
                        seen.append((entry.path, entry.stat().st_mtime_ns, entry.stat().st_size))
        except OSError:
            continue
    return repr(sorted(seen)).encode()
