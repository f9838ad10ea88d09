"""Builds the daemon's parts from the settings: stations, evaluator, actor, deliverer, and the beats that drive them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from gpuwatch.daemon import Beat, Clockwork
from gpuwatch.engine.act import Actor
from gpuwatch.engine.deliver import Deliverer
from gpuwatch.engine.evaluate import Evaluator, Rules, Start
from gpuwatch.engine.follow import Follower
from gpuwatch.engine.hunt import Hunter, queries_for
from gpuwatch.engine.novelty import Novelty
from gpuwatch.engine.reconcile import Reconciler
from gpuwatch.engine.sight import Watchman
from gpuwatch.engine.station import Station
from gpuwatch.engine.sweep import Sweeper, sweep_targets
from gpuwatch.storage.desk import StoreDesk
from gpuwatch.storage.history import History
from gpuwatch.storage.ledger import Ledger
from gpuwatch.storage.outbox import Outbox
from gpuwatch.wiring import adapters, channels, new_id, real_now

if TYPE_CHECKING:
    from gpuwatch.net import Http
    from gpuwatch.providers import Adapter
    from gpuwatch.settings import Settings
    from gpuwatch.storage.database import Database
    from gpuwatch.watches.watch import Watch

log = logging.getLogger(__name__)
