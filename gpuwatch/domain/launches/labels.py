"""The label of an instance: `gpuwatch-<launch id>-<install id>-<watch id> <text of the owner>`. Pure.

The launch id alone identifies the instance. The other two show its origin if the launch is not in the database: another
installation, or a launch rented after the backup that was restored.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

LABEL_PREFIX = "gpuwatch-"
LABEL_LENGTH = 60  # every provider at which gpuwatch rents accepts this length; a plugin's may accept less
EXTRA_LENGTH = 20  # the part of `LABEL_LENGTH` that the ids leave to the text of the owner
_ID_LENGTH = 8
# A launch id stays readable even if a provider cut off the rest; the owner's text follows after a space.
_LABEL: Final = r"gpuwatch-([a-z2-7]{12})(?:-([a-z2-7]{0,8}))?(?:-([a-z2-7]{0,8}))?(?: .*)?"


class LabelIds(NamedTuple):
    """The content of a label. None: the label does not contain it, as labels of older versions."""

    launch_id: str
    install_id: str | None
    watch_id: str | None


def label_of(
    launch_id: str,
    extra: str | None = None,
    *,
    install_id: str | None = None,
    watch_id: str | None = None,
    length: int = LABEL_LENGTH,
) -> str:
    """Return the label of a launch's instance.

    Args:
        extra: the owner's text; cut to the remaining length.
        length: the maximum length at the provider. The launch id is always complete; the other ids are complete or
            absent.
    """
    label = LABEL_PREFIX + launch_id
    for part in (install_id, watch_id):
        if part is None or len(label) + 1 + len(part) > length:
            break
        label = f"{label}-{part}"
    return f"{label} {extra}"[: max(length, len(label))].rstrip() if extra else label


def label_ids(label: str | None) -> LabelIds | None:
    """Return the content of a label; None: it is not one of gpuwatch's, however similar."""
    found = re.fullmatch(_LABEL, label or "")
    if found is None:
        return None
    launch_id, *others = found.groups()
    install_id, watch_id = (one if one and len(one) == _ID_LENGTH else None for one in others)
    return LabelIds(launch_id, install_id, watch_id)


def launch_id_in(label: str | None) -> str | None:
    """Return the launch id in a label; None: it is not one of gpuwatch's."""
    found = label_ids(label)
    return None if found is None else found.launch_id
