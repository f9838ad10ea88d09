"""Object stores through the system's rclone, run here. Keys come from its settings or the environment, never argv."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from io import BytesIO
from pathlib import Path

import msgspec

from gpuwatch.domain.jobs.checkpoints import below
from gpuwatch.domain.market.offer import clean
from gpuwatch.domain.setup.store_addresses import is_store
from gpuwatch.ports.remote import ObjectMissing, StoreUnreachable
from gpuwatch.redaction import redact
from gpuwatch.remote.bounded_process import one_line, run_bounded

_S3 = "GPUWATCHS3"  # a remote that the environment defines for this process alone
_ENV = ("RCLONE_", "AWS_", "XDG_", "GOOGLE_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT", "http", "no_proxy")
_TIMEOUT_OPTIONS = ("--retries", "1", "--low-level-retries", "3", "--contimeout", "15s", "--timeout", "60s", "-q")
_NOT_FOUND_CODES = frozenset({3, 4})  # rclone: directory not found, file not found
_MAX_OUTPUT_BYTES = 16 << 20


class _StoredObject(msgspec.Struct, frozen=True):
    Path: str
    Size: int
    Hashes: dict[str, str] = {}


class Rclone:
    """Object stores, named as in job files: `s3://BUCKET/FOLDER`, `rclone:REMOTE:FOLDER`.

    Every method raises StoreUnreachable and has a timeout; a repeated copy resumes.

    Args:
        env: contains keys and rclone's settings.
    """

    def __init__(self, env: Mapping[str, str] = os.environ) -> None:
        self._env = env

    def put(self, folder: Path, names: Sequence[str], target: str, *, timeout_s: float) -> None:
        """Copy files, then compare size and MD5 of each with the store's; without MD5, read the file back."""
        from_names = ("--files-from-raw", "-")
        self._call(["copy", *from_names, str(folder), _path(target)], timeout_s, names)
        list_args = ["lsjson", "-R", "--files-only", "--hash", "--hash-type", "md5", *from_names, _path(target)]
        stored = {entry.Path: entry for entry in _parse_listing(self._call(list_args, timeout_s, names))}
        without_md5 = []
        for name in names:
            entry = stored.get(name)
            if entry is None or entry.Size != (folder / name).stat().st_size:
                raise StoreUnreachable(f"{name} at {target} is incomplete")
            if not entry.Hashes.get("md5"):
                without_md5.append(name)
            elif entry.Hashes["md5"] != _digest(folder / name, "md5"):
                raise StoreUnreachable(f"{name} at {target} differs from the original")
        if without_md5:
            output = self._call(["hashsum", "SHA256", "--download", *from_names, _path(target)], timeout_s, without_md5)
            checksums = {
                name: digest for digest, _, name in (line.partition("  ") for line in output.decode().splitlines())
            }
            for name in without_md5:
                if checksums.get(name) != _digest(folder / name, "sha256"):
                    raise StoreUnreachable(f"{name} at {target} differs from the original")

    def get(self, source: str, folder: Path, names: Sequence[str] = (), *, timeout_s: float) -> None:
        """Copy a file or a folder here, or the named files below it; equal files are kept. Raises ObjectMissing."""
        from_names = ("--files-from-raw", "-") if names else ()
        folder.mkdir(parents=True, exist_ok=True)
        self._call(["copy", *from_names, _path(source), str(folder)], timeout_s, names)
        if not any(folder.iterdir()):  # S3 has no folders: a missing one looks empty
            raise ObjectMissing(f"no file at {source}")

    def list_folders(self, target: str, *, timeout_s: float) -> list[str]:
        """Return the names of the folders below it, sorted; empty if there are none."""
        try:
            output = self._call(["lsjson", "--dirs-only", _path(target)], timeout_s)
        except ObjectMissing:
            return []
        return sorted(entry.Path for entry in _parse_listing(output))

    def read(self, source: str, *, timeout_s: float) -> bytes:
        """Return the content of a small file. Raises ObjectMissing."""
        content = self._call(["cat", _path(source)], timeout_s)
        if not content:  # rclone's answer for a key that S3 does not have
            raise ObjectMissing(f"no file at {source}")
        return content

    def delete(self, target: str, first: str, *, timeout_s: float) -> None:
        """Delete a folder with its contents, beginning with one file."""
        for args in (["deletefile", _path(below(target, first))], ["purge", _path(target)]):
            with suppress(ObjectMissing):
                self._call(args, timeout_s)

    def _call(self, args: Sequence[str], timeout_s: float, names: Sequence[str] = ()) -> bytes:
        stdout = BytesIO()
        program = shutil.which("rclone", path=self._env.get("PATH", os.defpath))
        if program is None:
            raise StoreUnreachable("rclone is not installed; Debian: apt install rclone")
        name_lines = "".join(f"{name}\n" for name in names).encode()
        result = run_bounded(
            [program, *_TIMEOUT_OPTIONS, *args],
            stdout,
            timeout_s=timeout_s,
            max_bytes=_MAX_OUTPUT_BYTES,
            stdin=name_lines,
            env=self._environment(),
        )
        if result.exit_code == 0 and not result.is_truncated:
            return stdout.getvalue()
        reason = clean(redact(one_line(result.stderr)), 300)
        if result.exit_code is None:
            reason = f"no answer within {timeout_s:g} s"
        error_class = ObjectMissing if result.exit_code in _NOT_FOUND_CODES else StoreUnreachable
        raise error_class(f"rclone: {reason or result.exit_code}")

    def _environment(self) -> dict[str, str]:
        """Return rclone's environment: the usual variables of S3 clients, and nothing else."""
        inherited = {name: text for name, text in self._env.items() if name.startswith(_ENV)}
        endpoint = self._env.get("AWS_ENDPOINT_URL_S3") or self._env.get("AWS_ENDPOINT_URL")
        s3_settings = {"TYPE": "s3", "ENV_AUTH": "true", "PROVIDER": "Other" if endpoint else "AWS"}
        if endpoint:
            s3_settings["ENDPOINT"] = endpoint
        if region := self._env.get("AWS_REGION") or self._env.get("AWS_DEFAULT_REGION"):
            s3_settings["REGION"] = region
        return {f"RCLONE_CONFIG_{_S3}_{key}": text for key, text in s3_settings.items()} | inherited


def _path(address: str) -> str:
    """Return the path in rclone's syntax. Connection strings are rejected, because they may contain keys."""
    if not is_store(address):
        raise StoreUnreachable(f"{address!r} is not a store address")
    if address.startswith("s3://"):
        return f"{_S3}:{address.removeprefix('s3://')}"
    return address.removeprefix("rclone:")


def _parse_listing(output: bytes) -> list[_StoredObject]:
    try:
        return msgspec.json.decode(output or b"[]", type=list[_StoredObject])
    except msgspec.MsgspecError:
        raise StoreUnreachable("rclone: cannot parse its listing") from None


def _digest(path: Path, kind: str) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(kind, usedforsecurity=False)).hexdigest()
