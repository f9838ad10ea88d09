"""Builds the daemon's parts from the settings: stations, evaluator, actor, deliverer, and the beats that drive them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass

log = logging.getLogger(__name__)
