"""All facts about one launch: its row, its events, the utilisation of its GPUs, and its end."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from gpuwatch.app.launches.launches import known_launch
from gpuwatch.bootstrap import open_store_read_only
from gpuwatch.domain.launches.instances.obligation import latest_end
from gpuwatch.domain.launches.instances.utilisation import UtilisationSample
from gpuwatch.domain.launches.launch import Launch, LaunchEvent
from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository
from gpuwatch.storage.launches.utilisation import SqlUtilisationRepository

if TYPE_CHECKING:
    from gpuwatch.settings import Settings

_SHOWN = 500  # number of samples; of a longer series, every nth


class LaunchDetails(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about one launch. `ends_at`: None, no end is set."""

    launch: Launch
    events: Sequence[LaunchEvent]
    utilisation: Sequence[UtilisationSample]
    ends_at: datetime | None


def launch_details(settings: Settings, launch_id: str) -> LaunchDetails:
    """Collect the facts. Raises UsageError (no such launch), StoreError."""
    with open_store_read_only(settings) as store:
        repository = SqlLaunchRepository(store)
        launch = known_launch(repository, launch_id)
        samples = SqlUtilisationRepository(store).samples_since(launch_id, launch.intended_at)
        events = repository.events(launch_id)
    step = max(1, len(samples) // _SHOWN)
    return LaunchDetails(launch=launch, events=events, utilisation=samples[::step], ends_at=latest_end(launch))
