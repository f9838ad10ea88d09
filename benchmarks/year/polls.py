"""The polls of the year: rows in the order of time, each scope's days in packed form, totals and quotas."""

from __future__ import annotations

from array import array

import numpy as np
from numpy.typing import NDArray

from benchmarks.year.market import Ints, Scope, Year, hunts
from benchmarks.year.writing import TableWriter
from gpuwatch.domain.history.packed_polls import COMPLETENESS, LANES, PollColumns, pack_polls
from gpuwatch.domain.setup.durations import DAY_S
from gpuwatch.storage.setup.tables import poll, poll_day, poll_total, quota_day

_POLLS_AT_ONCE = 200_000
_COVERS, _LANE_SHIFT = 4, 3  # as in the packed form


class PollWriter:
    """Writes every poll, in the order of time."""

    def __init__(self, writer: TableWriter, year: Year, sold: list[Scope]) -> None:
        self._writer = writer
        self._until_s = year.until_s
        self._rng = np.random.default_rng([year.seed, 6])
        hunted = list(hunts(year, sold))
        self._every = [(scope, "sweep") for scope in sold] + [(scope, "hunt") for scope, _ in hunted]
        self._times = [scope.at_s for scope in sold] + [at_s for _, at_s in hunted]
        self._failed = [scope.failed for scope in sold] + [self._rng.random(len(at_s)) < 0.002 for _, at_s in hunted]
        self._quota: dict[tuple[str, int], int] = {}

    def write(self) -> int:
        """Write polls, quotas, totals and packed days; return the number of polls."""
        of = np.concatenate([np.full(len(one), number) for number, one in enumerate(self._times)])
        at_s, failed = np.concatenate(self._times), np.concatenate(self._failed)
        order = np.argsort(at_s, kind="stable")
        of, at_s, failed = of[order], at_s[order], failed[order]
        rows = np.concatenate([
            self._write(of[part], at_s[part], failed[part], part.start + 1)
            for part in (slice(start, start + _POLLS_AT_ONCE) for start in range(0, len(order), _POLLS_AT_ONCE))
        ])  # fmt: skip
        providers, days = zip(*self._quota, strict=True)
        quotas = {"provider": list(providers), "day": list(days), "rows": list(self._quota.values())}
        self._writer.write(quota_day, quotas)
        self._write_totals(of, at_s, failed, rows)
        self._pack(of, at_s, failed)
        return len(order)

    def _write_totals(self, of: Ints, at_s: Ints, failed: NDArray[np.bool_], rows: Ints) -> None:
        totals = []
        for number, (scope, lane) in enumerate(self._every):
            mine = of == number
            answered = mine & ~failed
            newest_s, newest_rows = int(at_s[answered][-1]), int(rows[answered][-1])
            key = scope.seller.name, scope.gpu, scope.spot, lane
            counts = int(mine.sum()), int(rows[mine].sum())
            totals.append((*key, *counts, newest_s, newest_rows, 0, newest_s, newest_rows))
        columns = zip((column.name for column in poll_total.columns), zip(*totals, strict=True), strict=True)
        self._writer.write(poll_total, {name: list(values) for name, values in columns})

    def _pack(self, of: Ints, at_s: Ints, failed: NDArray[np.bool_]) -> None:
        """Write the polls of each scope and day that is over; the numbers of the rows begin at 1."""
        scopes: dict[tuple[str, str, int], list[int]] = {
            (scope.seller.name, scope.gpu, scope.spot): [] for scope, _ in self._every
        }
        for number, (scope, _) in enumerate(self._every):
            scopes[scope.seller.name, scope.gpu, scope.spot].append(number)
        lanes = np.array([LANES.index(lane) for _, lane in self._every])
        is_sweep = lanes[of] == LANES.index("sweep")
        answers = np.where(failed, COMPLETENESS.index("failed"), COMPLETENESS.index("complete"))
        flags = answers | np.where(is_sweep & ~failed, _COVERS, 0) | lanes[of] << _LANE_SHIFT
        packed_to = self._until_s // DAY_S
        for key in sorted(scopes):
            places = np.nonzero(np.isin(of, scopes[key]) & (at_s < packed_to * DAY_S))[0]
            days = at_s[places] // DAY_S
            found = [
                (day, _covered_s(at_s[mine], flags[mine]), pack_polls(_columns(at_s[mine], mine + 1, flags[mine]), day))
                for day, mine in ((day, places[days == day]) for day in np.unique(days).tolist())
            ]
            names = ("day", "covered_s", "polls")
            columns = {name: list(values) for name, values in zip(names, zip(*found, strict=True), strict=True)}
            provider, gpu, spot = key
            self._writer.write(poll_day, {"provider": provider, "gpu": gpu, "spot": spot, **columns})

    def _write(self, of: Ints, at_s: Ints, failed: NDArray[np.bool_], first_id: int) -> Ints:
        polled = [self._every[number] for number in of.tolist()]
        is_sweep = np.array([lane == "sweep" for _, lane in self._every])[of]
        drawn = np.where(is_sweep, self._rng.integers(2, 40, len(of)), self._rng.integers(0, 3, len(of)))
        rows = np.where(failed, 0, drawn)
        skipped = np.where(failed, 0, self._rng.random(len(of)) < 0.01).astype(np.int64)
        for (scope, _), moment, size in zip(polled, at_s.tolist(), rows.tolist(), strict=True):
            key = scope.seller.name, moment // DAY_S
            self._quota[key] = self._quota.get(key, 0) + size
        columns = {
            "id": np.arange(first_id, first_id + len(of)),
            "provider": [scope.seller.name for scope, _ in polled],
            "lane": [lane for _, lane in polled],
            "gpu": [scope.gpu for scope, _ in polled],
            "spot": [scope.spot for scope, _ in polled],
            "at_s": at_s,
            "completeness": ["failed" if error else "complete" for error in failed.tolist()],
            "covers": (is_sweep & ~failed).astype(np.int64),
            "complete_to_microusd": None,
            "rows": rows,
            "skipped": skipped,
            "elapsed_ms": np.where(failed, 0, self._rng.integers(120, 1900, len(of))),
            "error": ["HTTP 503: no answer" if error else None for error in failed.tolist()],
            "not_understood": ['{"unknown GPU": 1}' if one else None for one in skipped.tolist()],
        }
        self._writer.write(poll, columns)
        return rows


def _columns(at_s: Ints, numbers: Ints, flags: Ints) -> PollColumns:
    size = len(at_s)
    return PollColumns(
        _array(at_s), _array(numbers), bytearray(flags.astype(np.uint8).tobytes()), array("q", [-1]) * size
    )


def _array(values: Ints) -> array[int]:
    made = array("q")
    made.frombytes(values.astype(np.int64).tobytes())
    return made


def _covered_s(at_s: Ints, flags: Ints) -> int | None:
    covering = at_s[(flags & _COVERS) > 0]
    return int(covering[-1]) if len(covering) else None
