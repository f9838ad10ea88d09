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

from gpuwatch.domain.jobs.stores import below, is_store
from gpuwatch.domain.market.text import clean
from gpuwatch.ports.remote import ObjectMissing, StoreUnreachable
from gpuwatch.redaction import redact
from gpuwatch.remote.bounded_process import run_bounded

_S3 = "GPUWATCHS3"  # a remote that the environment defines for this process alone
_ENV = ("RCLONE_", "AWS_", "XDG_", "GOOGLE_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT", "http", "no_proxy")
_BOUNDED = ("--retries", "1", "--low-level-retries", "3", "--contimeout", "15s", "--timeout", "60s", "-q")
_MISSING = frozenset({3, 4})  # rclone: directory not found, file not found
_ANSWER_MAX = 16 << 20


class _Listed(msgspec.Struct, frozen=True):
    Path: str
    Size: int
    Hashes: dict[str, str] = {}


class Rclone:
    """Implements `ports.remote.ObjectStores`.

    Args:
        env: contains keys and rclone's settings.
    """

    def __init__(self, env: Mapping[str, str] = os.environ) -> None:
        self._env = env

    def put(self, folder: Path, names: Sequence[str], target: str, *, timeout_s: float) -> None:
        """Copy files, then compare size and MD5 of each with the store's; without MD5, read the file back."""
        chosen = ("--files-from-raw", "-")
        self._call(["copy", *chosen, str(folder), _path(target)], timeout_s, names)
        asked = ["lsjson", "-R", "--files-only", "--hash", "--hash-type", "md5", *chosen, _path(target)]
        there = {one.Path: one for one in _parsed(self._call(asked, timeout_s, names))}
        unknown = []
        for name in names:
            one = there.get(name)
            if one is None or one.Size != (folder / name).stat().st_size:
                raise StoreUnreachable(f"{name} at {target} is incomplete")
            if not one.Hashes.get("md5"):
                unknown.append(name)
            elif one.Hashes["md5"] != _digest(folder / name, "md5"):
                raise StoreUnreachable(f"{name} at {target} differs from the original")
        if unknown:
            said = self._call(["hashsum", "SHA256", "--download", *chosen, _path(target)], timeout_s, unknown)
            sums = {name: digest for digest, _, name in (line.partition("  ") for line in said.decode().splitlines())}
            for name in unknown:
                if sums.get(name) != _digest(folder / name, "sha256"):
                    raise StoreUnreachable(f"{name} at {target} differs from the original")

    def get(self, source: str, folder: Path, names: Sequence[str] = (), *, timeout_s: float) -> None:
        """Copy a file or a folder here, or the named files below it; existing equal files are kept."""
        chosen = ("--files-from-raw", "-") if names else ()
        folder.mkdir(parents=True, exist_ok=True)
        self._call(["copy", *chosen, _path(source), str(folder)], timeout_s, names)
        if not any(folder.iterdir()):  # S3 has no folders: a missing one looks empty
            raise ObjectMissing(f"no file at {source}")

    def folders(self, target: str, *, timeout_s: float) -> list[str]:
        """Return the names of the folders below it, sorted; empty if there are none."""
        try:
            said = self._call(["lsjson", "--dirs-only", _path(target)], timeout_s)
        except ObjectMissing:
            return []
        return sorted(one.Path for one in _parsed(said))

    def read(self, source: str, *, timeout_s: float) -> bytes:
        """Return the content of a small file."""
        said = self._call(["cat", _path(source)], timeout_s)
        if not said:  # rclone's answer for a key that S3 does not have
            raise ObjectMissing(f"no file at {source}")
        return said

    def drop(self, target: str, first: str, *, timeout_s: float) -> None:
        """Delete a folder with its contents, beginning with one file."""
        for words in (["deletefile", _path(below(target, first))], ["purge", _path(target)]):
            with suppress(ObjectMissing):
                self._call(words, timeout_s)

    def _call(self, words: Sequence[str], timeout_s: float, names: Sequence[str] = ()) -> bytes:
        into = BytesIO()
        program = shutil.which("rclone", path=self._env.get("PATH", os.defpath))
        if program is None:
            raise StoreUnreachable("rclone is not installed; Debian: apt install rclone")
        listed = "".join(f"{name}\n" for name in names).encode()
        result = run_bounded(
            [program, *_BOUNDED, *words],
            into,
            timeout_s=timeout_s,
            max_bytes=_ANSWER_MAX,
            stdin=listed,
            env=self._settings(),
        )
        if result.exit_code == 0 and not result.cut:
            return into.getvalue()
        why = clean(redact(" ".join(result.stderr.decode("utf-8", "replace").split())), 300)
        if result.exit_code is None:
            why = f"no answer within {timeout_s:g} s"
        kind = ObjectMissing if result.exit_code in _MISSING else StoreUnreachable
        raise kind(f"rclone: {why or result.exit_code}")

    def _settings(self) -> dict[str, str]:
        """Return rclone's environment: the usual variables of S3 clients, and nothing else."""
        kept = {name: text for name, text in self._env.items() if name.startswith(_ENV)}
        endpoint = self._env.get("AWS_ENDPOINT_URL_S3") or self._env.get("AWS_ENDPOINT_URL")
        made = {"TYPE": "s3", "ENV_AUTH": "true", "PROVIDER": "Other" if endpoint else "AWS"}
        if endpoint:
            made["ENDPOINT"] = endpoint
        if region := self._env.get("AWS_REGION") or self._env.get("AWS_DEFAULT_REGION"):
            made["REGION"] = region
        return {f"RCLONE_CONFIG_{_S3}_{key}": text for key, text in made.items()} | kept


def _path(address: str) -> str:
    """Return the path in rclone's syntax. Connection strings are rejected, because they may contain keys."""
    if not is_store(address):
        raise StoreUnreachable(f"{address!r} is not a store address")
    if address.startswith("s3://"):
        return f"{_S3}:{address.removeprefix('s3://')}"
    return address.removeprefix("rclone:")


def _parsed(said: bytes) -> list[_Listed]:
    try:
        return msgspec.json.decode(said or b"[]", type=list[_Listed])
    except msgspec.MsgspecError:
        raise StoreUnreachable("rclone: cannot parse its listing") from None


def _digest(path: Path, kind: str) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(kind, usedforsecurity=False)).hexdigest()
