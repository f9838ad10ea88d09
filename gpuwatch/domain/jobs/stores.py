"""Addresses of object stores in job files, which the local rclone reads and writes. Pure."""

from __future__ import annotations

import re
from pathlib import PurePath

from gpuwatch.domain.jobs.job import JobDefinition

_REMOTE = re.compile(r"rclone:[A-Za-z0-9_][\w.+@-]{0,63}:[^\x00-\x1f]*")
_BUCKET = re.compile(r"s3://[A-Za-z0-9][A-Za-z0-9.-]{1,62}(/[^\x00-\x1f]*)?")
EXPECTED = "expected s3://BUCKET/FOLDER or rclone:REMOTE:FOLDER, without keys or options"


def is_remote(address: str) -> bool:
    """Whether a source or target is an address for the local rclone; it may still be invalid."""
    return address.startswith("rclone:")


def is_store(address: str) -> bool:
    """Whether results or checkpoints can be stored there."""
    return _REMOTE.fullmatch(address) is not None or _BUCKET.fullmatch(address) is not None


def below(address: str, *names: str) -> str:
    """Join an address and a relative path, also at the root of a remote."""
    joined = "/".join(names)
    return f"{address}{joined}" if address.endswith((":", "/")) else f"{address}/{joined}"


def kept_facts(definition: JobDefinition) -> list[tuple[str, str]]:
    """Where a job's results and checkpoints go, as text; empty: nothing is kept."""
    folder = definition.folder
    places = {
        result.source: result.target if is_store(result.target) else str(PurePath(folder, result.target))
        for result in definition.results
    }
    facts = [("results", ", ".join(f"{source} to {target}" for source, target in places.items()))] if places else []
    if (checkpoint := definition.checkpoint) is not None:
        where = f"here and in {checkpoint.store}" if checkpoint.store else "here"
        facts.append(("checkpoint", f"{checkpoint.path}; gpuwatch keeps the newest {checkpoint.keep} {where}"))
    return facts
