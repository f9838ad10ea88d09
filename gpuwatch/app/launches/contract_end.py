"""When the provider itself ends the contract of a launch: asked before its end moves, and before it starts again."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from gpuwatch.app.launches.launches import launcher_of
from gpuwatch.bootstrap import http_client
from gpuwatch.domain.setup.durations import format_moment
from gpuwatch.engine.launches.guarding.instance_lists import instance_by_id
from gpuwatch.errors import OrderError, ProviderError
from gpuwatch.ports import EndMover

if TYPE_CHECKING:
    from gpuwatch.domain.launches.launch import Launch
    from gpuwatch.settings import Settings

log = logging.getLogger(__name__)


class ContractEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a contract.

    Attributes:
        is_known: the provider showed the instance; False: the contract may end earlier than anything planned.
        at: None: the provider sets none.
    """

    provider: str
    is_known: bool
    at: datetime | None = None

    def is_before(self, moment: datetime) -> bool:
        """Whether it is known to end before this time."""
        return self.at is not None and self.at < moment

    @property
    def text(self) -> str:
        """When it ends, as the rest of a sentence."""
        return f"its contract at {self.provider} ends at {format_moment(self.at)}" if self.at is not None else ""


def contract_end(settings: Settings, launch: Launch, until: datetime | None = None) -> ContractEnd:
    """Ask the provider for it. Without an answer it is not known.

    Args:
        until: an end that the provider itself sets is moved first, so that the instance can live until then.
    """
    instance = None
    with http_client(settings) as http:
        launcher = launcher_of(settings, http, launch.provider)
        if launcher is not None and launch.instance_id is not None:
            try:
                if until is not None and isinstance(launcher, EndMover):
                    _move_end(launcher, launch.instance_id, until)
                instance = instance_by_id(launcher, launch.instance_id)
            except ProviderError as error:
                log.warning("%s", error)
    at = None if instance is None else instance.ends_at
    return ContractEnd(provider=launch.provider, is_known=instance is not None, at=at)


def _move_end(mover: EndMover, instance_id: str, until: datetime) -> None:
    """Whether it succeeded, the end that the provider states then tells."""
    try:
        mover.move_end(instance_id, until)
    except (OrderError, ProviderError) as error:
        log.warning("its end was not moved: %s", error)
