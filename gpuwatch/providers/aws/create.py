"""The request for one machine, and its answer. Pure; never logged, because it contains secrets.

cloud-init's user data, which a new machine runs at its first boot, gives the environment to the start script and to
every login shell. The machine can end itself: its shutdown terminates it.
AWS's image with NVIDIA's open kernel modules runs on Turing and newer. V100 and older cards need the proprietary
driver, and AMD's cards another one: for these the owner sets an image.
source: release notes of AWS's Deep Learning Base images, 2026-01 to 2026-09: "supported EC2 instances".
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Mapping
from datetime import datetime
from math import ceil, isfinite
from typing import Any, Final

from gpuwatch.errors import OrderRefused, OutcomeUnknown, RefusalKind, RefusalScope
from gpuwatch.ports import Created, Order
from gpuwatch.ports.settings import Option
from gpuwatch.providers.aws import IMAGE
from gpuwatch.providers.aws.network import NetworkOptions, network_options, network_request
from gpuwatch.providers.aws.offers import OfferId, known_type
from gpuwatch.providers.toolkit.basic_launcher import not_sent, refuse
from gpuwatch.providers.toolkit.first_boot import shutdown_timer
from gpuwatch.providers.toolkit.validation import at, objects

BYTES_MAX: Final = 16_384  # before base64. source: AWS's EC2 user guide, 2026
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_END: Final = "GPUWATCH_ONSTART_ENDS_HERE"
_ENV_FILE: Final = "/etc/profile.d/gpuwatch.sh"


def user_data(script: str | None, env: Mapping[str, str], ends_at: datetime | None, now: datetime) -> str:
    """Build a shell script for cloud-init; empty: there is nothing to do.

    Args:
        script: the owner's; a first line `#!…` names the program that runs it.
        ends_at: when the machine ends itself, timezone-aware; None: never.

    Raises:
        ValueError: it cannot be written; the text is a sentence for the owner.
    """
    parts = []
    if ends_at is not None:
        parts.append(shutdown_timer(ends_at, now))
    if env:
        parts.append(_environment(env))
    if script:
        parts.append(_onstart(script))
    combined = "".join(["#!/bin/bash\n", *parts]) if parts else ""
    size = len(combined.encode())
    if size > BYTES_MAX:
        raise ValueError(f"onstart and env need {size} bytes of user data; EC2 accepts {BYTES_MAX}")
    return combined


def exports(env: Mapping[str, str]) -> str:
    """Return shell lines that set these variables. Raises ValueError."""
    invalid = [name for name in env if not _NAME.fullmatch(name)]
    if invalid:
        raise ValueError(f"invalid name of an environment variable: {invalid[0][:40]!r}")
    if any("\0" in value for value in env.values()):
        raise ValueError("a value of env contains a zero byte")
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in env.items())


def _environment(env: Mapping[str, str]) -> str:
    lines = exports(env)
    return f"{lines}cat >{_ENV_FILE} <<'{_END}'\n{_delimited(lines)}{_END}\n"


def _onstart(script: str) -> str:
    path = "/var/lib/cloud/gpuwatch-onstart"
    text = script if script.startswith("#!") else f"#!/bin/bash\n{script}"
    text = text if text.endswith("\n") else f"{text}\n"
    return f"cat >{path} <<'{_END}'\n{_delimited(text)}{_END}\nchmod 700 {path}\n{path}\n"


def _delimited(text: str) -> str:
    if _END in text.splitlines():
        raise ValueError(f"onstart and env must not contain the line {_END}")
    return text


SSM: Final = "resolve:ssm:"
# Ubuntu without drivers. source: Canonical's page "Find Ubuntu images on AWS", whose names gists quote, read 2026-11
_CPU_IMAGE: Final = f"{SSM}/aws/service/canonical/ubuntu/server/22.04/stable/current/amd64/hvm/ebs-gp2/ami-id"
_OPEN_MODULES: Final = "oss-nvidia-driver"
_CLOSED_ONLY: Final = frozenset({"p2", "p3", "p3dn", "g3", "g3s"})
_AMD: Final = frozenset({"g4ad"})


def image_of(options: Mapping[str, Option], machine_type: str) -> str:
    """Return the image's id, or the name of a parameter, which EC2 resolves itself."""
    family, instance_type = machine_type.partition(".")[0], known_type(machine_type)
    text = value_for(options.get("images"), family) or str(options.get("image"))
    if text == IMAGE and instance_type is not None and not instance_type.count:
        text = _CPU_IMAGE
    text = text.replace("{arch}", instance_type.arch if instance_type else "x86_64")
    return text if text.startswith(("ami-", SSM)) else f"{SSM}{text}"


def image_problem(options: Mapping[str, Option], machine_type: str) -> tuple[str, str] | None:
    """Return what is wrong with the image for this type, and the fix; None: no problem is known."""
    family = machine_type.partition(".")[0]
    if _OPEN_MODULES not in image_of(options, machine_type):
        return None
    mend = f'set options.images = ["{family}=ami-…"]'
    if family in _CLOSED_ONLY:
        return f"the image has NVIDIA's open kernel modules; the GPU of {family} needs the proprietary driver", mend
    if family in _AMD:
        return f"the image has NVIDIA's driver; the GPU of {family} is from AMD", mend
    return None


def value_for(values: Option, place: str) -> str | None:
    """Return the first "place=value" setting for a place; None: there is none."""
    pairs = (str(value).partition("=") for value in values) if isinstance(values, tuple | list) else ()
    return next((value.strip() for name, _, value in pairs if name.strip() == place and value.strip()), None)


PROVIDER: Final = "aws"
_NO_IMAGE_S: Final = 3600.0  # a person must set another image
TAG_LABEL: Final = "gpuwatch-label"
TAG_BID: Final = "gpuwatch-bid"
TAG_DISK: Final = "gpuwatch-disk-gb"
INSTANCE_ID: Final = re.compile(r"i-[0-9a-f]{8,17}")
_LABEL_LENGTH: Final = 255  # of a tag's value
_MAX_DISK_GB: Final = 16_384
_MAX_BID_USD: Final = 10_000.0


def run_request(
    order: Order, offer: OfferId, options: Mapping[str, Option], now: datetime, group: str | None = None
) -> dict[str, Any]:
    """Build the parameters of `RunInstances`.

    The client token consists of label and offer: EC2 creates one machine for it, however often it is sent.

    Args:
        group: the security group that gpuwatch created in the region; None: none.

    Raises:
        OrderRefused: the order does not fit into a request.
    """
    _check(order, offer, options)
    tags = [{"Key": key, "Value": value} for key, value in _tags(order).items()]
    request: dict[str, Any] = {
        "MinCount": 1,
        "MaxCount": 1,
        "InstanceType": offer.type,
        "ImageId": image_of(options, offer.type),
        "ClientToken": hashlib.sha256(f"{order.label} {order.offer_id}".encode()).hexdigest(),
        "InstanceInitiatedShutdownBehavior": "terminate",
        "MetadataOptions": {"HttpTokens": "required", "HttpEndpoint": "enabled"},
        "TagSpecifications": [{"ResourceType": kind, "Tags": tags} for kind in ("instance", "volume")],
    }
    optional: dict[str, Any] = {
        "BlockDeviceMappings": _disk(order.disk_gb, options) if order.disk_gb else None,
        "KeyName": options.get("key_name"),
        "IamInstanceProfile": {"Name": options["instance_profile"]} if options.get("instance_profile") else None,
        "UserData": _user_data(order, now) or None,
        "InstanceMarketOptions": None if order.bid_usd_hour is None else _spot(order.bid_usd_hour),
    }
    request |= network_request(_network(options), offer.region, offer.zone, group)
    return request | {key: value for key, value in optional.items() if value is not None}


def parse_created(answer: Mapping[str, Any], region: str) -> Created:
    """Return the receipt. Raises OutcomeUnknown."""
    instances = objects(answer.get("Instances"))
    instance_id = at(instances[0], "InstanceId") if len(instances) == 1 else None
    if not isinstance(instance_id, str) or not INSTANCE_ID.fullmatch(instance_id):
        raise OutcomeUnknown(f"aws: {region}: an unexpected answer")
    return Created(instance_id=f"{region}/{instance_id}")


def parse_instance_id(text: str) -> tuple[str, str]:
    """Return the region and EC2's own id. Raises OrderRefused."""
    region, _, instance_id = text.partition("/")
    if not re.fullmatch(r"[a-z0-9-]{4,25}", region) or not INSTANCE_ID.fullmatch(instance_id):
        raise not_sent(PROVIDER, "invalid instance id; expected one such as us-east-1/i-0123456789abcdef0")
    return region, instance_id


def _check(order: Order, offer: OfferId, options: Mapping[str, Option]) -> None:
    if offer.spot is not (order.bid_usd_hour is not None):
        raise not_sent(PROVIDER, "a spot offer requires a bid, and other offers accept none")
    if order.bid_usd_hour is not None and not (isfinite(order.bid_usd_hour) and 0 < order.bid_usd_hour < _MAX_BID_USD):
        raise OrderRefused(f"aws: nothing was sent: invalid bid {order.bid_usd_hour}", RefusalKind.BID_TOO_LOW)
    problem = image_problem(options, offer.type)
    if problem is not None:
        raise not_sent(PROVIDER, " → ".join(problem), RefusalScope.MACHINE, _NO_IMAGE_S)
    unsupported = {
        "ports: the security group opens them": order.ports,
        "template": order.template,
        "registry: EC2 starts a machine, not a container": order.registry,
        "volume": order.volume,
        f"runtype {order.runtype!r}: only ssh is possible": not order.runtype.startswith("ssh"),
    }
    is_disk_valid = isfinite(order.disk_gb) and 0 <= order.disk_gb <= _MAX_DISK_GB
    sizes = {
        f"a disk of {order.disk_gb} GB; EC2 supports up to {_MAX_DISK_GB}": not is_disk_valid,
        f"the label is longer than {_LABEL_LENGTH} characters": len(order.label) > _LABEL_LENGTH,
    }
    refuse(
        PROVIDER,
        sizes | {f"AWS does not support this part of the watch: {what}": value for what, value in unsupported.items()},
    )


def _tags(order: Order) -> dict[str, str]:
    tags = {"Name": order.label, TAG_LABEL: order.label, TAG_DISK: str(ceil(order.disk_gb))}
    return tags if order.bid_usd_hour is None else tags | {TAG_BID: _format_usd(order.bid_usd_hour)}


def _disk(disk_gb: float, options: Mapping[str, Option]) -> list[dict[str, Any]]:
    """Return the root disk if its size differs from the image's. EC2 refuses a disk that is smaller than the image."""
    disk = {"VolumeSize": ceil(disk_gb), "VolumeType": "gp3", "DeleteOnTermination": True}
    return [{"DeviceName": str(options.get("root_device")), "Ebs": disk}]


def _network(options: Mapping[str, Option]) -> NetworkOptions:
    try:
        return network_options(options)
    except ValueError as error:
        raise not_sent(PROVIDER, str(error)) from None


def _user_data(order: Order, now: datetime) -> str:
    try:
        return user_data(order.onstart, order.env, order.self_destruct_at, now)
    except ValueError as error:
        raise not_sent(PROVIDER, str(error)) from None


def _spot(bid_usd_hour: float) -> dict[str, Any]:
    """Return a one-time request that is terminated when interrupted: the disk of a stopped machine would be billed."""
    return {
        "MarketType": "spot",
        "SpotOptions": {
            "MaxPrice": _format_usd(bid_usd_hour),
            "SpotInstanceType": "one-time",
            "InstanceInterruptionBehavior": "terminate",
        },
    }


def _format_usd(usd: float) -> str:
    return f"{usd:.6f}"
