"""What a watch hands to another program that rents: a task of an orchestrator, or the words of a command. Pure.

- A task of SkyPilot or dstack. Source: SkyPilot 0.14.1 (`sky/utils/schemas.py`, names of clouds) and dstack 0.22.5
  (`TaskConfiguration`, `ProfileParams`, `BackendType`), read 2026-11. Regions and machine types that both sides spell
  alike are in `orchestrators.csv`; otherwise the task contains neither, and the price cap decides. Several machines
  run only where the tool connects them (`MULTI_NODE` of SkyPilot's clouds, `ComputeWithMultinodeSupport` of dstack).
- The words of a command: `command = ["sky", "launch", …, "{region}"]`, with placeholders replaced. A placeholder is
  replaced within its word: no value adds a second word, and gpuwatch passes none to a shell. Values from a marketplace
  or host keep letters, digits and a few signs, and never start like an option or a path.
"""

from __future__ import annotations

import csv
import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import ROUND_DOWN, Decimal
from functools import cache
from itertools import pairwise
from pathlib import PurePath
from typing import Any, Final

from gpuwatch.domain.market.money import usd
from gpuwatch.domain.market.offer import priced_units
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.watch import Watch

STEP_USD: Final = Decimal("0.0001")  # of prices in a task
LEAST_MEMORY: Final = 0.9  # of the card's memory, as two lists may state it for one card
_NAME: Final = re.compile(r"[^a-z0-9]+")
_FORMS: Final = re.compile(r"\s*\b(SXM\d?|PCIe|NVL|\d+GB)\b")

TASK_FILE: Final = "task_file"
PLACEHOLDERS: Final = (
    *("provider", "region", "instance_type", "offer_id", "gpu", "gpu_count", "spot", "price_usd_hour", "max_price"),
    *("max_runtime_s", "watch", "name", "launch_id", TASK_FILE),
)
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
_UNSAFE = re.compile(r"[^\w .:/,+-]")
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh", "fish"})
_LONGEST = 200


def orchestrator_task_of(tool: str, watch: Watch, match: Match, command: str) -> dict[str, Any]:
    """Build the task: cloud, region and type as the orchestrator spells them, never above the watch's limit. Pure."""
    return (_skypilot if tool == "skypilot" else _dstack)(watch, match, command)


def as_yaml(task: Mapping[str, Any]) -> str:
    """The task as YAML: plain keys, texts in double quotes."""
    return "\n".join(_lines(task, 0)) + "\n"


def _skypilot(watch: Watch, match: Match, command: str) -> dict[str, Any]:
    offer, names = match.offer, names_at(match.offer.provider)
    place = f"/{offer.region}" if names["skypilot_region"] and offer.region else ""
    resources: dict[str, Any] = {
        "infra": f"{names['skypilot']}{place}",
        "accelerators": _accelerators(match),  # for an `instance_type`, 0.14.1 ignores `max_hourly_cost`
        "use_spot": offer.spot,
        "max_hourly_cost": price_cap_usd_hour(watch, match),
    }
    if watch.disk_gb:
        resources["disk_size"] = math.ceil(watch.disk_gb)
    return {"name": task_name(watch), "resources": resources, "run": command}


def _dstack(watch: Watch, match: Match, command: str) -> dict[str, Any]:
    offer, names = match.offer, names_at(match.offer.provider)
    gpu: dict[str, Any] = {"name": [model_name(match.offer.gpu)], "count": offer.gpu_count}
    if offer.gpu_memory_gib:
        gpu["memory"] = f"{math.floor(offer.gpu_memory_gib * LEAST_MEMORY)}GB.."  # excludes smaller cards of that name
    resources: dict[str, Any] = {"gpu": gpu}
    if watch.disk_gb:
        resources["disk"] = f"{math.ceil(watch.disk_gb)}GB.."
    task: dict[str, Any] = {
        "type": "task",
        "name": task_name(watch),
        "commands": [command],
        "resources": resources,
        "backends": [names["dstack"]],
    }
    if names["dstack_region"] and offer.region:
        task["regions"] = [offer.region]
    if names["dstack_type"] and offer.terms.instance_type:
        task["instance_types"] = [offer.terms.instance_type]
    return task | {"spot_policy": "spot" if offer.spot else "on-demand", "max_price": price_cap_usd_hour(watch, match)}


def price_cap_usd_hour(watch: Watch, match: Match) -> float:
    """The watch's limit for the whole machine in USD an hour, rounded down. Neither tool adds a commission."""
    return float((watch.max_price_usd_gpu_hour * priced_units(match.offer.gpu_count)).quantize(STEP_USD, ROUND_DOWN))


def _accelerators(match: Match) -> str:
    """`H100:8`, `A100-80GB:1`, `RTX4090:2`: SkyPilot's spelling, without the form factor."""
    model, memory = model_name(match.offer.gpu), match.offer.gpu_memory_gib or 0.0
    return f"{model}{'-80GB' if model == 'A100' and memory > 60 else ''}:{match.offer.gpu_count}"


def model_name(gpu: str) -> str:
    """Return the model without form factor, memory and blanks. Both tools reject unknown names."""
    return _FORMS.sub("", gpu).replace(" ", "")


def task_name(watch: Watch) -> str:
    """One name per watch, so that a second hand-over finds the first one's machine instead of renting another."""
    return f"gpuwatch-{_NAME.sub('-', watch.name.lower()).strip('-') or 'watch'}"[:40].rstrip("-")


@cache
def _table() -> Mapping[str, Mapping[str, str]]:
    path = os.path.join(os.path.dirname(__file__), "orchestrators.csv")
    lines = __spec__.loader.get_data(path).decode().splitlines()  # type: ignore[union-attr]
    return {row["provider"]: row for row in csv.DictReader(lines)}


def names_at(provider: str) -> Mapping[str, str]:
    """Return the tools' name of a provider; empty if neither knows it."""
    return _table().get(provider, {})


def is_supported(tool: str, provider: str, nodes: int = 1) -> bool:
    """Whether the tool rents there, and, for several machines, connects them there."""
    names = names_at(provider)
    return bool(names.get(tool) and (nodes == 1 or names.get(f"{tool}_nodes")))


def providers_of_clusters(tool: str) -> tuple[str, ...]:
    """Return the providers at which the tool runs several machines together."""
    return tuple(provider for provider in _table() if is_supported(tool, provider, 2))


def _lines(task: Mapping[str, Any], depth: int) -> list[str]:
    found, indent = [], "  " * depth
    for key, value in task.items():
        if isinstance(value, Mapping):
            found += [f"{indent}{key}:", *_lines(value, depth + 1)]
        else:
            found.append(f"{indent}{key}: {json.dumps(value, ensure_ascii=False)}")
    return found


def filled_words(watch: Watch, match: Match, launch_id: str, task_file: str = "TASK_FILE") -> tuple[str, ...]:
    """Return the words of the command for an offer: as many as the owner wrote."""
    offer, runtime_s = match.offer, watch.launch.max_runtime_s if watch.launch else None
    values = {
        "provider": plain_word(offer.provider),
        "region": plain_word(offer.region),
        "instance_type": plain_word(offer.terms.instance_type),
        "offer_id": plain_word(offer.offer_id),
        "gpu": plain_word(offer.gpu),
        "gpu_count": str(offer.gpu_count),
        "spot": "true" if offer.spot else "false",
        "price_usd_hour": f"{usd(match.price.price_microusd_hour):.4f}",
        "max_price": f"{price_cap_usd_hour(watch, match):.4f}",
        "max_runtime_s": "" if runtime_s is None else str(round(runtime_s)),
        "watch": plain_word(watch.name),
        "name": task_name(watch),
        "launch_id": launch_id,
        TASK_FILE: task_file,
    }
    return tuple(_PLACEHOLDER.sub(lambda found: values[found[1]], word) for word in watch.command)


def plain_word(text: str | None) -> str:
    """Return a text from outside as a part of a word: unusual characters become `_`; empty: unknown."""
    kept = _UNSAFE.sub("_", (text or "")[:_LONGEST]).replace("..", "_")
    return kept.lstrip("-./ ").rstrip()


def word_faults(words: Sequence[str]) -> Iterator[str]:
    """Yield the errors in a command as its owner wrote it."""
    if _PLACEHOLDER.search(words[0]):
        yield "expected a program as the first word, without a placeholder"
    for name in dict.fromkeys(name for word in words for name in _PLACEHOLDER.findall(word)):
        if name not in PLACEHOLDERS:
            yield f"unknown placeholder {{{name}}}; expected one of: {', '.join(PLACEHOLDERS)}"
    for before, word in pairwise(words):
        is_script = PurePath(words[0]).name in _SHELLS and re.fullmatch(r"-[a-z]*c", before)
        if is_script and _PLACEHOLDER.search(word):
            yield 'no placeholder in a script; pass it as an argument: ["sh", "-c", "… \\"$1\\"", "sh", "{region}"]'


def uses_task_file(words: Sequence[str]) -> bool:
    """Whether a command uses the file of its task."""
    return any(f"{{{TASK_FILE}}}" in word for word in words)
