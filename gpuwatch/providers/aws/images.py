"""Selects the machine image of an instance type. Pure.

AWS's image with NVIDIA's open kernel modules runs on Turing and newer. V100 and older cards need the proprietary
driver, and AMD's cards another one: for these the owner sets an image.
source: release notes of AWS's Deep Learning Base images, 2026-01 to 2026-09: "supported EC2 instances".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gpuwatch.ports.settings import Option
from gpuwatch.providers.aws.instance_types import table

SSM: Final = "resolve:ssm:"
_OPEN_MODULES: Final = "oss-nvidia-driver"
_CLOSED_ONLY: Final = frozenset({"p2", "p3", "p3dn", "g3", "g3s"})
_AMD: Final = frozenset({"g4ad"})


def image_of(options: Mapping[str, Option], machine_type: str) -> str:
    """Return the image's id, or the name of a parameter, which EC2 resolves itself."""
    family, instance_type = machine_type.partition(".")[0], table().get(machine_type)
    text = value_for(options.get("images"), family) or str(options.get("image"))
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
