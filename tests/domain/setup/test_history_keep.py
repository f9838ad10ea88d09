"""`[history] keep`."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from gpuwatch.domain.setup.fields import table_of
from gpuwatch.domain.setup.history_keep import FOREVER, HistoryKeep

DAY_S = 86_400.0


def keep(**keys: Any) -> HistoryKeep:
    return HistoryKeep.of(table_of(HistoryKeep).model_validate(keys))


def test_what_is_not_set_is_as_by_default() -> None:
    assert keep() == HistoryKeep(polls_s=30 * DAY_S, intervals_s=400 * DAY_S, hourly_s=FOREVER)
    assert keep(polls="7d", intervals="forever") == HistoryKeep(polls_s=7 * DAY_S, intervals_s=FOREVER)


@pytest.mark.parametrize("keys", [{"polls": "1h"}, {"polls": 30}, {"hourly": "never"}, {"intervals": "11000d"}])
def test_a_span_is_a_day_at_least_or_forever(keys: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        keep(**keys)


@pytest.mark.parametrize("keys", [{"intervals": "20d"}, {"hourly": "100d"}, {"polls": "forever"}])
def test_what_is_made_of_others_stays_as_long_as_they(keys: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected polls to be kept no longer than intervals"):
        keep(**keys)
