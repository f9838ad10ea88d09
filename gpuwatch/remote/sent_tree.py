"""What a local file or folder is when it is sent: what its links lead to goes with it, or the fault is named."""

from __future__ import annotations

import os
import posixpath
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from gpuwatch.domain.market.offer import clean
from gpuwatch.ports.remote import CannotSend


class SentEntry(NamedTuple):
    """One file, folder or link, as it will be there.

    Attributes:
        name: its path below what is sent.
        path: where its content is now.
        is_kept_link: it stays a link, to another entry.
        is_left_out: it has no content: a socket, pipe or device.
    """

    name: str
    path: str
    is_kept_link: bool = False
    is_left_out: bool = False


def sent_entries(local: Path) -> Iterator[SentEntry]:
    """Yield everything that is sent of a file or folder. Links to outside of the folder count as what they lead to.

    Raises:
        CannotSend: a link leads nowhere or in a circle, or a file may not be read.
    """
    if local.is_dir():
        yield from _below(local, str(local), "", (os.path.realpath(local),))
    else:
        _check_readable(str(local), local.name)
        yield SentEntry(local.name, str(local))


def _below(root: Path, folder: str, name: str, above: tuple[str, ...]) -> Iterator[SentEntry]:
    try:
        found = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        raise CannotSend(f"{_shown(name)} cannot be read: {error.strerror}") from error
    for entry in found:
        below = posixpath.join(name, entry.name)
        if entry.is_symlink() and _is_kept(root, below, entry.path):
            yield SentEntry(below, entry.path, is_kept_link=True)
        elif entry.is_dir():
            real = os.path.realpath(entry.path)
            if any(f"{one}/".startswith(f"{real}/") for one in above):
                raise CannotSend(f"the link {_shown(below)} leads back to a folder that contains it")
            yield SentEntry(below, entry.path)
            yield from _below(root, entry.path, below, (*above, real))
        else:
            is_file = entry.is_file()
            if is_file:
                _check_readable(entry.path, below)
            yield SentEntry(below, entry.path, is_left_out=not is_file)


def _is_kept(root: Path, name: str, path: str) -> bool:
    """Whether it is sent as a link: it leads to something that is sent as well, as `rsync --copy-unsafe-links` does."""
    leads_to = os.readlink(path)
    if not os.path.exists(path):
        raise CannotSend(f"the link {_shown(name)} leads nowhere ({_shown(leads_to)})")
    there = posixpath.normpath(posixpath.join(posixpath.dirname(name), leads_to))
    if leads_to.startswith("/") or there == ".." or there.startswith("../"):
        return False
    if not os.path.exists(root / there) or not os.path.samefile(root / there, path):
        raise CannotSend(f"the link {_shown(name)} would lead nowhere there ({_shown(leads_to)})")
    return True


def _check_readable(path: str, name: str) -> None:
    if not os.access(path, os.R_OK):
        raise CannotSend(f"{_shown(name)} cannot be read")


def _shown(name: str) -> str:
    return clean(os.fsencode(name).decode("utf-8", "replace") or ".", 100)


@contextmanager
def archive_of(local: Path) -> Iterator[BinaryIO]:
    """Yield a tar archive of it, written while it is read: it may be larger than the memory. Raises CannotSend."""
    entries = [entry for entry in sent_entries(local) if not entry.is_left_out]
    read_end, write_end = os.pipe()
    writer = threading.Thread(target=_write_archive, args=(entries, write_end), name="archive", daemon=True)
    with os.fdopen(read_end, "rb") as archive:
        writer.start()
        yield archive
    writer.join()  # its pipe is closed


def _write_archive(entries: list[SentEntry], write_end: int) -> None:
    # a file that is gone meanwhile, or a connection that is lost: without its end the archive counts as torn
    with suppress(OSError, ValueError), os.fdopen(write_end, "wb") as pipe:
        archive = tarfile.open(fileobj=pipe, mode="w|")  # noqa: SIM115 closing it after an error would complete it
        for entry in entries:
            archive.dereference = not entry.is_kept_link
            archive.add(entry.path, arcname=entry.name, recursive=False)
        archive.close()
