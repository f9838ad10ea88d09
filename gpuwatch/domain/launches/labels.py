"""The label of an instance: `gpuwatch-<launch id>-<install id>-<watch id> <text of the owner>`. Pure.

The launch id alone identifies the instance. The other two say whose it is when the launch is not in the database:
another installation's, or one that was rented after the backup that was restored.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

LABEL_PREFIX = "gpuwatch-"
LABEL_LENGTH = 60  # every provider at which gpuwatch rents takes as much; a plugin's may take less
_ID_LENGTH = 8
# An id that a provider cut off must not hide the launch; after a space: what the owner added.
_LABEL: Final = r"gpuwatch-([a-z2-7]{12})(?:-([a-z2-7]{0,8}))?(?:-([a-z2-7]{0,8}))?(?: .*)?"


class LabelIds(NamedTuple):
    """What a label says. None: it does not say, as labels of an older gpuwatch."""

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
        extra: the text that the owner wants in it; cut to what is left.
        length: characters that the provider takes. The launch id is always whole; the other ids are whole or left out.
    """
    label = LABEL_PREFIX + launch_id
    for part in (install_id, watch_id):
        if part is None or len(label) + 1 + len(part) > length:
            break
        label = f"{label}-{part}"
    return f"{label} {extra}"[: max(length, len(label))].rstrip() if extra else label


def label_ids(label: str | None) -> LabelIds | None:
    """Return what a label says; None: it is not one of gpuwatch's, however similar."""
    found = re.fullmatch(_LABEL, label or "")
    if found is None:
        return None
    launch_id, *others = found.groups()
    install_id, watch_id = (one if one and len(one) == _ID_LENGTH else None for one in others)
    return LabelIds(launch_id, install_id, watch_id)


def launch_id_in(label: str | None) -> str | None:
    """Return the launch that a label names; None: it is not one of gpuwatch's."""
    found = label_ids(label)
    return None if found is None else found.launch_id
