"""Builds the order for a launch and its candidate. Pure."""

from __future__ import annotations

from gpuwatch.domain.launches.bids import quoted_bid_usd_hour
from gpuwatch.domain.launches.launch import Launch
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.watch import LaunchSpec, RegistrySpec, VolumeSpec, Watch
from gpuwatch.ports import Order, Registry, Volume


def build_order(launch: Launch, match: Match, watch: Watch) -> Order:
    """The order for one candidate. A spot offer always carries its bid: without it the rent is on demand."""
    offer, spec = match.offer, watch.launch or LaunchSpec()
    return Order(
        offer_id=offer.offer_id,
        label=launch.label,
        image=spec.image,
        disk_gb=watch.disk_gb if watch.disk_gb is not None else offer.quoted_disk_gb,
        bid_usd_hour=quoted_bid_usd_hour(offer) if offer.spot else None,
        onstart=spec.onstart,
        env={**spec.env, **launch_environment(launch)},
        ports=spec.ports,
        runtype=spec.runtype,
        template=spec.template,
        registry=_registry(spec.registry),
        volume=_volume(spec.volume),
        self_destruct_at=launch.deadline if spec.self_destruct else None,
        deadline=launch.deadline,
    )


def launch_environment(launch: Launch) -> dict[str, str]:
    """What every instance gets to know about its launch."""
    variables = {"GPUWATCH_LAUNCH_ID": launch.launch_id, "GPUWATCH_WATCH": launch.watch}
    if launch.deadline is not None:
        variables["GPUWATCH_DEADLINE"] = launch.deadline.strftime("%Y-%m-%dT%H:%M:%SZ")
    return variables


def _registry(spec: RegistrySpec | None) -> Registry | None:
    return None if spec is None else Registry(server=spec.server, username=spec.username, password=spec.password)


def _volume(spec: VolumeSpec | None) -> Volume | None:
    return None if spec is None else Volume(mount=spec.mount, volume_id=spec.volume_id, size_gb=spec.size_gb)
