"""Builds the order for a launch and its candidate. Pure."""

from __future__ import annotations

from gpuwatch.domain.launches.launch import Launch
from gpuwatch.domain.market.json_view import rfc3339
from gpuwatch.domain.watches.computed_limits import quoted_bid_usd_hour
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.launch_spec import LaunchSpec, RegistrySpec, VolumeSpec
from gpuwatch.domain.watches.match import wanted_places
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.ports import Order, Registry, Volume

# Authorises the key for the login user: root of a container, or the user of a VM image (its script runs as root).
_LETTING_IN = """\
for home in "${HOME:-/root}" /root /home/*; do
[ -d "$home" ] && mkdir -p "$home/.ssh" || continue
grep -qsxF '@KEY@' "$home/.ssh/authorized_keys" || echo '@KEY@' >>"$home/.ssh/authorized_keys"
chmod 700 "$home/.ssh"; chmod 600 "$home/.ssh/authorized_keys"; chown -R --reference="$home" "$home/.ssh"
done
"""


def build_order(
    launch: Launch, match: Match, watch: Watch, public_key: str | None = None, *, moves_ends: bool = False
) -> Order:
    """Build the order for one candidate. A spot offer always carries its bid: without one the rental is on demand.

    Args:
        public_key: a key that the instance must accept in addition to those of the account.
        moves_ends: whether the provider can move the time at which the instance ends itself (`EndMover`).
    """
    offer, spec = match.offer, watch.launch or LaunchSpec()
    return Order(
        offer_id=offer.offer_id,
        label=launch.label,
        image=spec.image,
        disk_gb=watch.disk_gb if watch.disk_gb is not None else offer.quoted_disk_gb,
        bid_usd_hour=quoted_bid_usd_hour(offer) if offer.spot else None,
        onstart=_letting_in(public_key, spec.onstart),
        env=_environment(spec) | launch_environment(launch) | ({"PUBLIC_KEY": public_key} if public_key else {}),
        ports=spec.ports,
        runtype=spec.runtype,
        template=spec.template,
        registry=_registry(spec.registry),
        volume=_volume(spec.volume),
        places=wanted_places(watch, offer),
        self_destruct_at=launch.deadline if spec.ends_itself(moves_ends) else None,
        deadline=launch.deadline,
        needs_ssh=public_key is not None,
    )


def _letting_in(public_key: str | None, onstart: str | None) -> str | None:
    """Return the start script, preceded by one that authorises the key; some images do so themselves (PUBLIC_KEY)."""
    return onstart if public_key is None else _LETTING_IN.replace("@KEY@", public_key) + (onstart or "")


def launch_environment(launch: Launch) -> dict[str, str]:
    """Return the environment variables that describe its launch, for every instance."""
    variables = {"GPUWATCH_LAUNCH_ID": launch.launch_id, "GPUWATCH_WATCH": launch.watch}
    if launch.deadline is not None:
        variables["GPUWATCH_DEADLINE"] = rfc3339(launch.deadline)
    return variables


def _environment(spec: LaunchSpec) -> dict[str, str]:
    return spec.env | {name: secret.reveal() for name, secret in spec.secret_env.items()}


def _registry(spec: RegistrySpec | None) -> Registry | None:
    if spec is None:
        return None
    return Registry(server=spec.server, username=spec.username, password=spec.password.reveal())


def _volume(spec: VolumeSpec | None) -> Volume | None:
    return None if spec is None else Volume(mount=spec.mount, volume_id=spec.volume_id, size_gb=spec.size_gb)
