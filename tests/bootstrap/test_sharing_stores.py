"""A page runs several use cases over one opened store."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuwatch.bootstrap import open_store_read_only, share_open_stores
from gpuwatch.errors import StoreError, StoreNotReady
from gpuwatch.storage.alerts.pauses import SqlPauseRepository
from tests.upgraded_store import open_upgraded
from tests.web.served import settings_in


def test_within_the_block_a_store_is_opened_once_and_then_closed(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    with share_open_stores():
        with open_store_read_only(settings) as first:
            pass
        with open_store_read_only(settings) as second:
            assert second is first
            assert not SqlPauseRepository(second).load().by_hand
    with open_store_read_only(settings) as third:
        assert third is not first


def test_what_could_not_be_opened_is_tried_again(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, has_store=False)
    with share_open_stores():
        with pytest.raises(StoreNotReady), open_store_read_only(settings):
            pass
        open_upgraded(settings.database_url).close()
        with open_store_read_only(settings) as store:
            assert not SqlPauseRepository(store).load().by_hand


def test_an_error_within_leaves_nothing_shared(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    with pytest.raises(StoreError, match="lost"), share_open_stores(), open_store_read_only(settings) as first:
        raise StoreError("lost")
    with open_store_read_only(settings) as second:
        assert second is not first
