"""Options that say what a job is; the same words as in `[watch.job]`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.domain.planning.job_hours import JobSpec

Command = Callable[..., Any]
_PAIRS = ("speedup", "tokens_per_s")
_TEXTS = ("hours", "on", "tokens", "utilisation", "setup", "load", "checkpoint_every", "within")
_NUMBERS = ("scaling", "memory_gb", "image_gb", "download_mbps", "interruptions_per_day")
_OF_WORKLOAD = ("method", "precision", "optimizer", "batch", "context")

_OPTIONS = (
    click.option("--hours", help='Hours of work, "72" or "60-80", on the GPUs of --on.'),
    click.option("--on", metavar="GPUS", help='GPUs on which it takes those hours: "4x A100".'),
    click.option("--speedup", multiple=True, metavar="GPUS=X", help='Speed of other GPUs against --on: "4x H100=2.5".'),
    click.option("--tokens", help='Tokens of the whole job, instead of hours: "10B".'),
    click.option("--tokens-per-s", multiple=True, metavar="GPUS=N", help='Measured speed: "2x H100=350-500".'),
    click.option("--utilisation", help='Share of the nominal FLOP/s that the job reaches: "0.4", "0.35-0.45".'),
    click.option("--scaling", help="What each further GPU adds, as a share of one. Default: 1."),
    click.option("--memory-gb", help="GB that all GPUs together must hold. Default: what --size-of needs."),
    click.option("--setup", metavar="DURATION", help='Setup, once: "10m".'),
    click.option("--load", metavar="DURATION", help='Loading the model, at each start: "5m-7m".'),
    click.option("--image-gb", help="GB of the image, pulled at each start."),
    click.option("--download-mbps", help="Download speed in Mbit/s where an offer does not say."),
    click.option("--checkpoint-every", metavar="DURATION", help="Time between two checkpoints."),
    click.option("--within", metavar="DURATION", help='Longest time the whole job may take: "24h".'),
    click.option("--interruptions-per-day", help="Interruptions per day of a spot instance."),
)


def job_options(command: Command) -> Command:
    """The options of a job; they arrive under the names of `[watch.job]`'s keys, as text."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def job_of(given: dict[str, Any], model: str | None) -> JobSpec:
    """The job that the options say. Raises UsageError: one line that names the option."""
    from decimal import Decimal, InvalidOperation

    from gpuwatch.domain.watches.job_schema import WrongJob, job_from

    fields: dict[str, Any] = {key: given[key] for key in _TEXTS if given[key] is not None}
    for key in _NUMBERS:
        if given[key] is not None:
            try:
                fields[key] = Decimal(given[key])
            except InvalidOperation:
                raise UsageError(f"{_flag(key)} {given[key]!r}: expected a number") from None
    fields |= {key: _pairs(key, given[key]) for key in _PAIRS if given[key]}
    fields |= {key: given[key] for key in _OF_WORKLOAD}
    if model is not None:
        fields["model"] = model
    try:
        return job_from(fields)
    except WrongJob as wrong:
        raise UsageError("\n".join(_line(*fault) for fault in wrong.faults)) from None


def _pairs(key: str, given: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in given:
        gpus, equals, figure = text.rpartition("=")
        if not equals or not gpus.strip():
            raise UsageError(f'{_flag(key)} {text!r}: expected GPUs and a figure, such as "4x H100=2.5"')
        found[gpus.strip()] = figure.strip()
    return found


def _line(key: str, text: str) -> str:
    flag = "--size-of" if key == "model" else _flag(key or "method")
    return f"{flag}: {text}"


def _flag(key: str) -> str:
    return f"--{key.replace('_', '-')}"
