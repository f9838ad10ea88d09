"""Where a lake is: a folder, or a bucket of an S3 server. Others see a file complete or not at all."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from gpuwatch.atomic_file import atomic_file
from gpuwatch.errors import StoreError
from gpuwatch.home_folder import expand_home
from gpuwatch.storage.history.lake.lake_schema import import_arrow

_S3 = "s3://"
_CHUNK = 1 << 20
_GLOB = "*?["


class LakePlace(Protocol):
    """The files of a lake, by their names below its top."""

    url: str  # names the lake in the store

    def staged(self, name: str) -> Any:
        """A context with the path of a new local file; when its block ends without an error, it has that name."""

    def local(self, name: str, folder: Path) -> Path:
        """The path of a complete file for reading; a copy in `folder`, where it is elsewhere. Raises StoreError."""

    def has(self, name: str) -> bool:
        """Whether there is such a file. Raises StoreError."""

    def delete(self, name: str) -> None:
        """Delete a file, if it exists. Raises StoreError."""


def open_place(text: str) -> LakePlace:
    """Return the place that a setting or an option names. Raises StoreError."""
    if text.startswith(_S3):
        if not text.removeprefix(_S3).strip("/"):
            raise StoreError(f"{text}: names no bucket; write s3://bucket/prefix")
        return S3Lake(text.rstrip("/"))
    path = expand_home(text).absolute()
    if any(letter in str(path) for letter in _GLOB):
        raise StoreError(f"{path}: a lake's path may not contain {' or '.join(_GLOB)}; choose another folder")
    return FolderLake(path)


def checksum_of(path: Path) -> str:
    """SHA-256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


class FolderLake:
    """A lake in a folder."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.url = str(path)

    @contextmanager
    def staged(self, name: str) -> Iterator[Path]:
        """See `LakePlace`."""
        target = self._path / name
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with atomic_file(target, is_durable=True) as part:
                yield part
        except OSError as error:
            raise StoreError(f"cannot write {target}: {error.strerror or error}") from error

    def local(self, name: str, folder: Path) -> Path:
        """See `LakePlace`."""
        del folder
        path = self._path / name
        if not path.is_file():
            raise StoreError(f"{path} is missing, and the store no longer has its prices; restore it from a backup")
        return path

    def has(self, name: str) -> bool:
        """See `LakePlace`."""
        return (self._path / name).exists()

    def delete(self, name: str) -> None:
        """See `LakePlace`."""
        try:
            (self._path / name).unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(f"cannot delete {self._path / name}: {error.strerror or error}") from error


class S3Lake:
    """A lake in a bucket. Credentials, region and endpoint (`AWS_ENDPOINT_URL`) are those of the environment."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._prefix = url.removeprefix(_S3)
        self._opened: Any = None

    @property
    def _files(self) -> Any:
        if self._opened is None:
            import_arrow()
            from pyarrow import fs  # noqa: PLC0415 an extra

            endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
            scheme = endpoint.partition("://")[0] if endpoint and "://" in endpoint else None
            host = endpoint.rpartition("://")[2].rstrip("/") if endpoint else None
            self._opened = fs.S3FileSystem(
                request_timeout=60, connect_timeout=10, endpoint_override=host, scheme=scheme or "https"
            )
        return self._opened

    @contextmanager
    def staged(self, name: str) -> Iterator[Path]:
        """See `LakePlace`. The object is complete at once; it is read back before the block ends."""
        with TemporaryDirectory(prefix="gpuwatch-lake-") as folder:
            part = Path(folder) / "part"
            yield part
            self._upload(part, name)
            again = self.local(name, Path(folder))
            if checksum_of(again) != checksum_of(part):
                raise StoreError(f"{self.url}/{name}: read back, it differs from what was written; check the bucket")

    def _upload(self, part: Path, name: str) -> None:
        with (
            self._errors(f"cannot write {self.url}/{name}"),
            part.open("rb") as source,
            self._files.open_output_stream(f"{self._prefix}/{name}") as target,
        ):
            while chunk := source.read(_CHUNK):
                target.write(chunk)

    def local(self, name: str, folder: Path) -> Path:
        """See `LakePlace`."""
        path = folder / hashlib.sha256(name.encode()).hexdigest()
        with (
            self._errors(f"cannot read {self.url}/{name}"),
            self._files.open_input_stream(f"{self._prefix}/{name}") as source,
            path.open("wb") as target,
        ):
            while chunk := source.read(_CHUNK):
                target.write(chunk)
        return path

    def has(self, name: str) -> bool:
        """See `LakePlace`."""
        with self._errors(f"cannot read {self.url}/{name}"):
            return bool(self._files.get_file_info(f"{self._prefix}/{name}").is_file)

    def delete(self, name: str) -> None:
        """See `LakePlace`."""
        with self._errors(f"cannot delete {self.url}/{name}"), suppress(FileNotFoundError):
            self._files.delete_file(f"{self._prefix}/{name}")

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:  # Arrow's errors of a server are OSErrors
            raise StoreError(f"{what}: {' '.join(str(error).split())[:300]}") from error
