"""What pages say about a rented machine: where it is, and its state."""

from __future__ import annotations

from markupsafe import Markup

from gpuwatch.app.watches.nearest import provider_title
from gpuwatch.domain.launches.interruption import is_taken_back
from gpuwatch.domain.launches.launch import InstanceCondition, Launch, LaunchState
from gpuwatch.domain.launches.life.launch_record import disk_kept
from gpuwatch.domain.launches.money.launch_costs import BurnRate
from gpuwatch.domain.market.money import rate_text
from gpuwatch.domain.market.offer import clean
from gpuwatch.language import mark_text, translate_plural
from gpuwatch.language import translate as _
from gpuwatch.web.components import chip, hardware

_CHIPS = {  # of `components.chip`
    LaunchState.INTENDED: "starting",
    LaunchState.REQUESTED: "starting",
    LaunchState.STARTING: "starting",
    LaunchState.RUNNING: "running",
    LaunchState.STOPPING: "stopping",
    LaunchState.UNKNOWN: "searching",
    LaunchState.HELD: "held",
    LaunchState.ENDED: "ended",
    LaunchState.FAILED: "failed",
}
_CONDITIONS = {
    InstanceCondition.OUTBID: mark_text("Outbid"),
    InstanceCondition.STOPPED: mark_text("Stopped there"),
    InstanceCondition.OFFLINE: mark_text("Host offline"),
    InstanceCondition.UNLISTED: mark_text("Not listed"),
}

_DISK_KEPT = {
    "stopping": mark_text("Stops, disk kept"),
    "stopped": mark_text("Stopped, disk kept"),
    "starting": mark_text("Starts again"),
}


def machine_name(launch: Launch) -> str:
    """Return what was rented: "1× H100 SXM", "no GPU"."""
    return hardware(launch.gpu, launch.gpu_count)


def provider_name(launch: Launch) -> str:
    """Return who rents it out, as people call it."""
    return _("your command") if launch.is_by_command else clean(provider_title(launch.provider))


def machine_place(launch: Launch) -> str:
    """Return who rents it out, and where it is, as far as that is known: "vast.ai, Norway"."""
    where = launch.promised.region or launch.promised.country
    return f"{provider_name(launch)}, {clean(where)}" if where else provider_name(launch)


def machines_run(burn: BurnRate, shape: str | Markup = "{}{}") -> Markup:
    """Return how many machines are billed at which rate, how many of them may not exist, and how many disks are kept.

    Args:
        shape: of the rate, whose figure and unit fill it.
    """
    running = burn.launches - burn.kept
    text = translate_plural("{count} machine runs for {rate}.", "{count} machines run for {rate}.", running)
    if burn.kept and not running:
        text = translate_plural("{kept} disk is kept for {rate}.", "{kept} disks are kept for {rate}.", burn.kept)
    elif burn.kept:
        more = translate_plural(
            "The disk of {kept} more is kept; the rate contains it.",
            "The disks of {kept} more are kept; the rate contains them.",
            burn.kept,
        )
        text += " " + more
    if burn.held:
        check = translate_plural("{count} of them needs your check.", "{count} of them need your check.", burn.held)
        text += " " + check.format(count=burn.held)
    return Markup.escape(text).format(
        count=running, kept=burn.kept, rate=shape.format(rate_text(burn.effective), _("/h"))
    )


def launch_chip(launch: Launch) -> Markup:
    """Return its state; a running one whose instance does not run says why."""
    if (kept := disk_kept(launch)) is not None:
        return chip("nodata", _(_DISK_KEPT[kept]))
    if launch.state is LaunchState.RUNNING and launch.condition is not None:
        return chip("nodata", _(_CONDITIONS[launch.condition]))
    if launch.state is LaunchState.RUNNING and is_taken_back(launch.interruption):
        return chip("nodata", _("Taken back soon"))
    return chip(_CHIPS[launch.state])
