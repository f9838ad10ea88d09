"""Amazon EC2: whole machines with GPUs, on demand and spot, rented with the owner's own AWS account.

source: AWS's public API reference and the notes on it in our documents, read 2026-11.
"""

from __future__ import annotations

import re
from ipaddress import ip_network
from typing import Final

from gpuwatch.domain.market.offer import OfferKind
from gpuwatch.ports import ProviderSettings
from gpuwatch.ports.declarations import Adapter, Billing, OptionSpec, ProviderInfo, SelfDestruct, Tools
from gpuwatch.ports.prerequisites import declared
from gpuwatch.ports.settings import Option

_REGION: Final = re.compile(r"[a-z]{2,4}(-[a-z]+){1,3}-\d{1,2}")
_PLACE_AND_ID: Final = re.compile(r"[a-z0-9-]+=[a-z]+-[0-9a-z]+")


def _check_regions(value: Option) -> None:
    """Check names such as us-east-1: a wrong name makes every poll wait for a host that does not exist."""
    invalid = [one for one in _as_tuple(value) if not _REGION.fullmatch(one)]
    if invalid:
        raise ValueError(f"expected names of regions such as us-east-1, not {invalid[0][:40]!r}")


def _check_ids_by_place(value: Option) -> None:
    invalid = [one for one in _as_tuple(value) if not _PLACE_AND_ID.fullmatch(one)]
    if invalid:
        raise ValueError(
            f"expected place=id, such as us-east-1=sg-0123 or us-east-1a=subnet-0123, not {invalid[0][:40]!r}"
        )


def _check_images(value: Option) -> None:
    invalid = [one for one in _as_tuple(value) if not re.fullmatch(r"[a-z0-9-]+=\S+", one)]
    if invalid:
        raise ValueError(f"expected family=image, such as p3=ami-0123, not {invalid[0][:40]!r}")


def _check_address_range(value: Option) -> None:
    try:
        ip_network(str(value))
    except ValueError:
        raise ValueError("expected a range of addresses, such as 203.0.113.7/32") from None


def _check_block_hours(value: Option) -> None:
    """Check the length: AWS sells whole days up to two weeks, and then whole weeks."""
    step = 24 if isinstance(value, int) and value <= 14 * 24 else 168
    if not isinstance(value, int) or not 0 <= value <= 26 * 168 or value % step:
        raise ValueError("expected whole days up to 336 hours, or whole weeks up to 4368, as AWS sells them")


def _as_tuple(value: Option) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else ()


IMAGE: Final = "/aws/service/deeplearning/ami/{arch}/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id"

INFO = ProviderInfo(
    name="aws",
    title="AWS EC2",
    base_url="https://ec2.amazonaws.com",  # stands for AWS's own endpoint of each region and service
    launches=True,
    sells_cpu_machines=True,
    no_kept_disk="",
    no_kept_spot_disk="EC2 stops no spot machine of a one-time request",
    self_destruct=SelfDestruct(how="a timer on the machine shuts it down, which terminates it"),
    has_imds=True,
    takes_bids=True,
    runs_images=False,
    kinds=(OfferKind.LIVE, OfferKind.LISTED),
    spots=(False, True),
    billing=Billing(minimum_s=60.0, step_s=1.0),
    own_credentials="the AWS credential chain",
    extra="aws",
    options=(
        OptionSpec(
            name="source",
            kind="text",
            about="account: offers of your AWS account; public: AWS's price pages, list prices without an account.",
            default="account",
            choices=("account", "public"),
        ),
        OptionSpec(
            name="regions",
            kind="texts",
            about="Regions to search.",
            default=("us-east-1", "us-east-2", "us-west-2"),
            check=_check_regions,
        ),
        OptionSpec(
            name="list_regions",
            kind="texts",
            about="Regions in which to list instances; default: all regions enabled for the account.",
            check=_check_regions,
        ),
        OptionSpec(name="profile", kind="text", about="Profile of the AWS credential chain."),
        OptionSpec(
            name="image",
            kind="text",
            about="Machine image: ami-…, or the name of an SSM parameter; {arch} is replaced by x86_64 or arm64.",
            default=IMAGE,
        ),
        OptionSpec(
            name="images",
            kind="texts",
            about="Images by family, p3=ami-…, instead of `image`: for cards that need another driver.",
            check=_check_images,
        ),
        OptionSpec(name="root_device", kind="text", about="Name of the image's root device.", default="/dev/sda1"),
        OptionSpec(name="ssh_user", kind="text", about="SSH login user of the image.", default="ubuntu"),
        OptionSpec(name="key_name", kind="text", about="EC2 key pair for SSH; must exist in each region."),
        OptionSpec(
            name="subnets",
            kind="texts",
            about="Subnets by zone, us-east-1a=subnet-…; other zones use their default subnet.",
            check=_check_ids_by_place,
        ),
        OptionSpec(
            name="security_groups",
            kind="texts",
            about="Security groups by region, us-east-1=sg-…; other regions use their default group.",
            check=_check_ids_by_place,
        ),
        OptionSpec(
            name="ssh_from",
            kind="text",
            about="Addresses (CIDR) for SSH logins; without a security group, gpuwatch creates and deletes one.",
            check=_check_address_range,
        ),
        OptionSpec(
            name="public_ip",
            kind="text",
            about="Whether machines get a public address; default: as configured in their subnet.",
            choices=("yes", "no"),
        ),
        OptionSpec(
            name="capacity_block_hours",
            kind="integer",
            about="Show capacity blocks of this length as list prices (not rentable by gpuwatch); 0: none.",
            default=0,
            check=_check_block_hours,
        ),
        OptionSpec(name="instance_profile", kind="text", about="Name of the instance profile (IAM role) of instances."),
    ),
    default_disk_gb=100.0,
    poll_every_s=300.0,
    search_interval_s=1.0,
    console_url="https://console.aws.amazon.com/ec2/home#LaunchInstances:",
    prerequisites=declared(
        "providers/aws.md#before-the-first-rent",
        credentials="credentials that list instances in every enabled region",
        quota="vCPUs left in the quota of the region, family and market",
        key_pair="a key pair in the region, or an instance profile for Session Manager",
        image="an image with a driver for the GPU",
        network="a subnet in the zone, a public address, a security group that allows SSH",
        region="the region is enabled for the account",
        terms="the service-linked role of spot",
        order="EC2's own validation of the request (DryRun)",
    ),
    key_rights={
        "list": "ec2:DescribeInstances and ec2:DescribeRegions",
        "rent": "ec2:RunInstances, ec2:CreateTags and ec2:TerminateInstances",
    },
)


def build(settings: ProviderSettings, tools: Tools) -> Adapter:
    """Build the adapter of one account, for searching and renting, or of the public price lists alone.

    boto3 is imported with the first request; if it is missing, every request names the extra to install.
    """
    own_endpoints = settings.base_url.rstrip("/") == INFO.base_url
    if settings.options.get("source") == "public":
        from gpuwatch.providers.aws.public_market import PublicMarket  # noqa: PLC0415 - not for start-up

        return Adapter(name=INFO.name, info=INFO, market=PublicMarket(settings, tools, own_endpoints))
    from gpuwatch.providers.aws.catalog import CatalogCache  # noqa: PLC0415
    from gpuwatch.providers.aws.client import AwsClient  # noqa: PLC0415
    from gpuwatch.providers.aws.launcher import AwsLauncher  # noqa: PLC0415
    from gpuwatch.providers.aws.market import AwsMarket  # noqa: PLC0415

    client = AwsClient(settings, tools, own_endpoints)
    catalog = CatalogCache(client)
    launcher = AwsLauncher(client, catalog, settings)
    return Adapter(name=INFO.name, info=INFO, market=AwsMarket(settings, client, catalog), launcher=launcher)
