"""A launch as it is written down: as JSON, and the terms of its watch that are stored with it. Pure.

- `LaunchView`: the output of `gpuwatch launches --json` and the input of the owner's hooks.
- `terms_of`: the terms of the watch at the time of renting, used once the watch is gone. Secrets are not stored: no
  variables, no scripts, no logins, and of the hooks only commands, because an address may contain a token.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import cache, lru_cache
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from gpuwatch.domain.launches.interruption import InterruptionKind, is_taken_back
from gpuwatch.domain.launches.launch import InstanceCondition, Launch, LaunchState
from gpuwatch.domain.launches.money.launch_costs import cost_microusd, current_microusd_hour
from gpuwatch.domain.launches.money.reclaim import reclaim_of
from gpuwatch.domain.market.json_view import JsonView, Moment
from gpuwatch.domain.market.money import MICRO
from gpuwatch.domain.watches.launch_spec import HookSpec
from gpuwatch.domain.watches.watch import Watch

_OF_WATCH = (
    *("name", "gpu", "gpu_names", "max_price_usd_gpu_hour", "auto", "max_job_cost_usd", "job", "action", "spot"),
    *("min_download_mbps", "active", "notify", "budget", "on_end", "keep_disk_for_s"),
)
_OF_LAUNCH = (
    *("bid", "relaunch", "verify", "ssh_key", "wasteful_below", "wasteful_for_s", "idle_below", "idle_for_s"),
    *("stop_outside", "on_price_increase", "hook_timeout_s", "self_destruct", "volume"),
)
_HOOKS = ("on_running", "before_stop", "on_ended")


class SshView(JsonView, frozen=True, kw_only=True):
    """Where a machine's SSH server listens."""

    host: str
    port: int
    user: str


DiskKept = Literal["stopping", "stopped", "starting"]


class InterruptionView(JsonView, frozen=True, kw_only=True):
    """A provider's notice that it takes the machine back."""

    kind: Annotated[InterruptionKind, Meta(description="`rebalance`: a higher risk; nothing is decided.")]
    at: Annotated[Moment | None, Meta(description="When it goes; null: no time is announced.")]
    noticed_at: Moment | None


class LaunchView(JsonView, frozen=True, kw_only=True):
    """One launch, for programs and hooks. No secrets: neither environment nor script."""

    launch_id: str
    watch: str
    provider: str
    offer_id: str
    instance_id: str | None
    state: LaunchState
    condition: InstanceCondition | None
    dry_run: bool
    label: str
    price_usd_hour: Annotated[float, Meta(description="Commission included.")]
    requested_at: Moment | None
    running_at: Moment | None
    ended_at: Moment | None
    end_reason: str | None
    cost_usd: Annotated[float, Meta(description="So far, commission included.")]
    listed_usd_hour: float
    listed_cost_usd: float
    machine_id: str | None
    gpu: str
    gpu_count: int
    spot: bool
    intended_at: Moment
    ssh: Annotated[SshView | None, Meta(description="Where to log in; null: not known.")]
    disk_kept: Annotated[
        DiskKept | None, Meta(description="Stopped with its disk kept, on the way there, or starting; null: it is not.")
    ]
    disk_usd_day: Annotated[
        float | None,
        Meta(description="Of its kept disk, commission included; null: it is not kept."),
    ]
    interruption: Annotated[InterruptionView | None, Meta(description="The provider's notice; null: it gave none.")]
    account: str | None
    install_id: str | None
    watch_id: str | None
    started_by: Annotated[str, Meta(description="Its watch or job, or who approved it and how.")]
    reclaim_usd: Annotated[
        float | None,
        Meta(description="Of a bad machine: what it cost until its proven end, as billed. null: it was none."),
    ]


def launch_fields(launch: Launch, now: datetime) -> dict[str, Any]:
    """The fields of a `LaunchView` that the launch has not under their names."""
    return {
        "cost_usd": cost_microusd(launch, now) / MICRO,
        "listed_cost_usd": cost_microusd(launch, now, listed=True) / MICRO,
        "ssh": None if launch.ssh is None else SshView.of(launch.ssh),
        "interruption": None if launch.interruption is None else InterruptionView.of(launch.interruption),
        "account": launch.account_id,
        "started_by": _started_by(launch),
        "reclaim_usd": None if (bad := reclaim_of(launch)) is None else bad.microusd / MICRO,
        "disk_kept": disk_kept(launch),
        "disk_usd_day": current_microusd_hour(launch) * 24 / MICRO if launch.is_kept else None,
    }


def _started_by(launch: Launch) -> str:
    """What began it: "watch h100-night", "job train", "command line (root)"."""
    job = launch.purpose.job
    return launch.started_by or (f"watch {launch.watch}" if job is None else f"job {job}")


def disk_kept(launch: Launch) -> DiskKept | None:
    """Return where a launch is that is stopped with its disk kept; None: it is to run, or is over."""
    if launch.kept is None or launch.is_over:
        return None
    if launch.kept.is_starting:
        return "starting"
    return "stopped" if launch.is_kept else "stopping"


def launch_view(launch: Launch, now: datetime) -> LaunchView:
    """One launch as other programs see it."""
    return LaunchView.of(launch, **launch_fields(launch, now))


class LaunchEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded state change of a launch. The provider's text is cleaned, not escaped."""

    at: datetime
    from_state: LaunchState | None  # None: the intent
    to_state: LaunchState
    cause: str
    provider_words: str | None
    listed_microusd_hour: int | None
    price_microusd_hour: int | None


def state_of(launch: Launch) -> str:
    """Return its state with its condition, for terminals: "running (outbid)", "stopped, disk kept"."""
    if (kept := disk_kept(launch)) is not None:
        return "starting again" if kept == "starting" else f"{kept}, disk kept"
    note = "dry run" if launch.dry_run else None if launch.condition is None else launch.condition.value
    if note is None and not launch.is_over and is_taken_back(launch.interruption):
        note = "taken back soon"
    return launch.state.value + (f" ({note})" if note else "")


def terms_of(watch: Watch) -> str:
    """Return a watch as JSON, with the fields that are needed to follow its launch."""
    found = _differing(watch, _OF_WATCH)
    if watch.launch is not None:
        hooks = {name: _command(getattr(watch.launch, name)) for name in _HOOKS}
        found["launch"] = _differing(watch.launch, _OF_LAUNCH) | {name: hook for name, hook in hooks.items() if hook}
    return msgspec.json.encode(found).decode()


def governing_watch(launch: Launch, watches: Mapping[str, Watch]) -> Watch | None:
    """Return the watch that governs a launch: from the settings, or else as it was when it rented.

    None: the watch is gone, and the launch was rented by a version that stored no terms.
    """
    found = watches.get(launch.watch)
    return stored_watch(launch.terms) if found is None else found


@lru_cache(maxsize=64)
def stored_watch(terms: str | None) -> Watch | None:
    """Return the stored watch; None if a newer version wrote it in an unreadable form."""
    if terms is None:
        return None
    try:
        return msgspec.json.decode(terms, type=Watch)
    except msgspec.MsgspecError:
        return None


def has_volume(launch: Launch) -> bool:
    """Return whether it was rented with a volume; False: without one, or by a version that did not store that."""
    watch = stored_watch(launch.terms)
    return watch is not None and watch.launch is not None and watch.launch.volume is not None


def _differing(spec: msgspec.Struct, names: tuple[str, ...]) -> dict[str, Any]:
    """Those of these fields that differ from their defaults."""
    defaults = _defaults(type(spec))
    values = {name: getattr(spec, name) for name in names}
    return {name: value for name, value in values.items() if name not in defaults or value != defaults[name]}


@cache
def _defaults(of: type[msgspec.Struct]) -> Mapping[str, Any]:
    """The default of each field, cached, because this runs between an offer and its launch."""
    return {field.name: field.default for field in msgspec.structs.fields(of) if field.default is not msgspec.NODEFAULT}


def _command(hook: HookSpec | None) -> dict[str, str] | None:
    return None if hook is None or hook.command is None else {"command": hook.command}
