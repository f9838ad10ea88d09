"""Hundreds of launches of a whole gpuwatch on a virtual clock: a lying cloud, an owner who edits, and data loss.

`judge` reports broken promises.
"""

from __future__ import annotations

import logging
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from gpuwatch.domain.launches.launch import EndReason, Launch, LaunchState
from tests.soak.cloud import LABEL, NAME, Cloud, Rented, launch_id_in
from tests.soak.installation import SPOTS, WATCHES, Installation, Post, Wanted, template
from tests.soak.judge import Judge
from tests.soak.provider import provided

SMALL_STEPS = 14  # of ten seconds
KEY_OF_ANOTHER, KEY_ROTATED = "team.1", "main.2"
S = LaunchState


class Chapter:
    """One seeded run. `counts` has the events; the keys of PROMISES must stay 0."""

    def __init__(self, folder: Path, cloud: Cloud, seed: int) -> None:
        self.cloud = cloud
        self._rng = random.Random(f"{seed} owner")
        self._folder = folder
        self._later: list[tuple[float, Callable[[], None]]] = []  # (end, action)
        self._ongoing: set[str] = set()
        letters = random.Random(f"{seed} post")
        self.post = Post(lambda: not cloud.honest and letters.random() < 0.03)
        if self._rng.random() < 0.8:  # an account with a foreign instance
            cloud.somebody_rents("main", None)
        cloud.somebody_rents("team", None)
        self._home = self._install("home")
        self._all = [self._home]
        self.judge = Judge(cloud, self._all, self._ongoing)
        self.counts, self.broken = self.judge.counts, self.judge.broken

    def now(self) -> datetime:
        return self.cloud.now()

    def play(self, launches: int) -> None:
        """Fire until this many launches were started, then let everything finish."""
        rounds = 0
        while self.counts["launches"] < launches and rounds < launches * 20:
            rounds += 1
            self._fire()
            for _ in range(self._rng.randint(1, 4)):
                self._turn(self._rng.choice((3.0, 10.0, 30.0, 300.0)))
            self._something_happens()
            self._owner_settles()
        self.counts["rounds"] = rounds
        self._rest()
        found = [text for one in self._all for text in one.tracebacks]
        self.counts["tracebacks"] += len(found)
        self.broken += found
        self.counts["restarts"] += sum(one.restarts for one in self._all)
        self.counts["killed in an order or an end"] += sum(one.died for one in self._all)

    def close(self) -> None:
        for one in self._all:
            one.end()

    def _install(self, name: str) -> Installation:
        return Installation(name, self._folder / name, template(), self.cloud, self.now, self.post)

    # --- time ---------------------------------------------------------------------------------------------------------

    def _fire(self) -> None:
        gpu = self._rng.choice(sorted(WATCHES))
        self.cloud.publish(gpu, self._rng.choice((1.0, 2.0, 2.9)), gpu in SPOTS)
        one = self._rng.choice(self._all)
        one.look()  # like the daemon, which lists every few seconds while anything changes
        self.counts["launches"] += one.hunt()
        self.judge.audit()

    def _turn(self, seconds: float) -> None:
        self._pass(seconds)
        self.cloud.turn()
        self._look()

    def _look(self) -> None:
        for one in self._all:
            one.look()
        self.judge.audit()

    def _pass(self, seconds: float) -> None:
        """Let time pass: in small steps while anything is past its end, because then two minutes count."""
        until_s, small_steps = self.cloud.tick_s + seconds, 0
        while self.cloud.tick_s < until_s:
            if small_steps < SMALL_STEPS and self.judge.overdue():
                small_steps += 1
                self._step(10.0)
                self._look()
                continue
            ends = [end for end in self.judge.ends() if self.cloud.tick_s < end < until_s]
            self._step(min([end + 1 for end in ends] + [until_s]) - self.cloud.tick_s)
            if ends:
                small_steps = 0
                self._look()

    def _step(self, seconds: float) -> None:
        self.cloud.pass_s(seconds)
        for entry in [entry for entry in self._later if entry[0] <= self.cloud.tick_s]:
            self._later.remove(entry)
            entry[1]()

    # --- events -------------------------------------------------------------------------------------------------------

    def _something_happens(self) -> None:
        happenings: tuple[tuple[float, Callable[[], None]], ...] = (
            (0.05, self._home.kill_and_start), (0.04, self._clock_steps), (0.05, self._owner_stops),
            (0.01, self._another_gpuwatch), (0.02, self._another_key), (0.01, self._rotated_key), (0.02, self._rename),
            (0.06, self._backup), (0.01, self._restore), (0.01, self._second_installation), (0.03, self._omit),
            (0.02, self._edit_label), (0.02, self._lose_database), (0.02, lambda: self._hang("follow")),
            (0.01, lambda: self._hang("guard")), (0.02, self._outage),
        )  # fmt: skip
        lot = self._rng.random()
        wait_s = self._rng.choice((60.0, 700.0, 3600.0))
        for chance, happen in happenings:
            lot -= chance
            if lot < 0:
                if not (self._home.is_database_gone and happen != self._clock_steps):
                    happen()
                return
        if lot < 0.35:
            self._pass(wait_s)

    def _for(self, what: str, shortest_s: float, longest_s: float, end: Callable[[], None]) -> None:
        """Let it last for a while."""
        self.counts[what] += 1
        self.cloud.journal.append(f"{self.cloud.tick_s:9.1f} --- {what} begins")
        self._ongoing.add(what)

        def over() -> None:
            self._ongoing.discard(what)
            self.cloud.journal.append(f"{self.cloud.tick_s:9.1f} --- {what} ends")
            end()

        self._later.append((self.cloud.tick_s + self._rng.uniform(shortest_s, longest_s), over))

    def _clock_steps(self) -> None:
        self.cloud.stepped += timedelta(hours=self._rng.choice((-1, 1)))
        self.counts["clock steps"] += 1

    def _owner_stops(self) -> None:
        alive = [one for one in self._home.alive() if one.state is not S.STOPPING]
        if alive:
            reason = EndReason.STOPPED.text()
            one = self._rng.choice(alive)
            self._home.service.launch_repository.transition(one, S.STOPPING, reason, self.now(), end_reason=reason)

    def _another_gpuwatch(self) -> None:
        self.counts["instances of another gpuwatch"] += 1
        self.cloud.somebody_rents("main", LABEL + "z" * 10 + self._rng.choice(("aa", "bb", "cc")))

    def _another_key(self) -> None:
        """Use a key of the team's account; an hour later the owner returns to the right one."""
        if "key" in self._ongoing:
            return
        wanted = Wanted(
            key=KEY_OF_ANOTHER, renamed=self._home.wanted.renamed, renamed_from=self._home.wanted.renamed_from
        )
        if self._home.reload(wanted):
            self.counts["key of another account: taken at a reload"] += 1
        elif self._rng.random() < 0.5:
            self.counts["key of another account: refused at a reload"] += 1
            return
        else:
            self._home.start_with(wanted)
        self._for("key", 600, 7200, lambda: self._key("main.1"))

    def _key(self, key: str) -> None:
        self._home.start_with(msgspec.structs.replace(self._home.wanted, key=key))

    def _rotated_key(self) -> None:
        """Use a new key of the same account."""
        if "key" not in self._ongoing and self.cloud.has_lookup:  # else: gpuwatch providers accounts --same
            self.counts["rotated keys"] += 1
            wanted = msgspec.structs.replace(self._home.wanted, key=KEY_ROTATED)
            if not self._home.reload(wanted):
                self.counts["rotated key: refused at a reload"] += 1

    def _rename(self) -> None:
        """Rename a watch; an hour later the owner states its old name, if possible."""
        if "renamed" in self._ongoing or "key" in self._ongoing:
            return
        key = self._home.wanted.key
        _, (name, _, _) = self._rng.choice(sorted(WATCHES.items()))
        fresh = f"{name}-{int(self.cloud.tick_s)}" if not self._home.wanted.renamed else None
        renamed = ((name, fresh),) if fresh else ()
        if self._home.reload(Wanted(key=key, renamed=renamed)):
            said = Wanted(key=key, renamed=renamed, renamed_from=True)
            self._for("renamed", 600, 5400, lambda: self._home.wanted.renamed == renamed and self._say(said))

    def _say(self, said: Wanted) -> None:
        if self._home.is_database_gone or not self._home.reload(said):
            self.counts["renamed_from is not known"] += 1

    def _backup(self) -> None:
        if self._home.is_database_gone:
            return
        self._home.back_up(self._folder / "backup.db")

    def _restore(self) -> None:
        backup = self._folder / "backup.db"
        if backup.exists():
            self.counts["backups restored"] += 1
            self.cloud.first_list_of.add(self._home.name)
            self._home.restore(backup)
            for one in self.judge.ours().values():
                if one.instance.label != one.ordered_label and not self._home.knows(one.ordered_label):
                    one.is_unknowable = True
                    self.counts["label edited, database lost"] += 1

    def _second_installation(self) -> None:
        """Run another machine with the same settings and an empty database, for some hours."""
        if len(self._all) > 1:
            return
        name = f"second{self.counts['second installations']}"
        self.cloud.first_list_of.add(name)
        self._all.append(self._install(name))
        self._for("second installations", 3600, 14400, self._second_ends)

    def _second_ends(self) -> None:
        """Its owner stops its launches, and switches it off."""
        second = self._all[1]
        reason = EndReason.STOPPED.text()
        self.cloud.honest = True
        for _ in range(40):
            for one in second.alive():
                if one.state not in {S.STOPPING, S.HELD}:
                    second.service.launch_repository.transition(one, S.STOPPING, reason, self.now(), end_reason=reason)
                elif one.state is S.HELD:
                    self._resolve(second, one)
            self.cloud.pass_s(60.0)
            second.look()
            if not second.alive():
                break
        self.cloud.honest = False
        self._flush(second)
        self._all.remove(second)
        second.end()

    def _omit(self) -> None:
        """Omit an instance from all lists for a while."""
        running = sorted(i for i, one in self.judge.ours().items() if one.seen_running_s is not None)
        if running:
            one = self.judge.ours()[self._rng.choice(running)]
            one.omitted = True
            self._for("omitted by lists", 120, 2400, lambda: self._shown_again(one))

    def _shown_again(self, one: Rented) -> None:
        one.omitted, one.denied_until_s = False, self.cloud.tick_s

    def _edit_label(self) -> None:
        running = sorted(i for i, one in self.judge.ours().items() if one.seen_running_s is not None)
        if running:
            self.counts["labels edited"] += 1
            self.cloud.change(self._rng.choice(running), label="my own name")

    def _lose_database(self) -> None:
        if not self._home.is_database_gone:
            self._home.lose_database(True)
            self._for("database gone", 600, 10800, lambda: self._home.lose_database(False))

    def _hang(self, task: str) -> None:
        self._home.hung.add(task)
        self._for(f"{task} hangs", 600, 10800, lambda: self._home.hung.discard(task))

    def _outage(self) -> None:
        if not self.cloud.is_down:
            self.cloud.is_down = True
            self._for("outages", 120, 3600, self._back)

    def _back(self) -> None:
        self.cloud.is_down = False

    # --- the owner ----------------------------------------------------------------------------------------------------

    def _owner_settles(self) -> None:
        """After a correct listing, an hour later: no request is in flight any more."""
        for one in self._all:
            if one.is_database_gone or (one is self._home and "key" in self._ongoing):
                continue
            held = [launch for launch in one.alive() if launch.state is S.HELD]
            if held:
                self.counts["held"] += len(held)
                self._pass(3600.0)
            for launch in held:
                if one in self._all and not one.is_database_gone and "key" not in self._ongoing:
                    self._resolve(one, launch)
        if self._rng.random() < 0.3:
            self._settle_orphans()

    def _resolve(self, one: Installation, launch: Launch) -> None:
        repository = one.service.launch_repository
        newest = repository.get(launch.launch_id)
        if newest is None or newest.state is not S.HELD:
            return
        found = [i for i, rented in self.cloud.rented.items() if launch_id_in(rented.ordered_label) == launch.launch_id]
        if found:
            self.cloud.rented[found[0]].seen_running_s = None
            changes = {"intended_at": self.now(), "requested_at": self.now()}
            repository.transition(newest, S.STARTING, "adopted", self.now(), instance_id=found[0], **changes)
        else:
            reason = EndReason.RESOLVED_ABSENT.text()
            repository.transition(newest, S.FAILED, reason, self.now(), ended_at=self.now(), end_reason=reason)

    def _settle_orphans(self) -> None:
        """The owner ends reported unknown instances in the console, or disowns them."""
        for installation in self._all:
            if installation.is_database_gone:
                continue
            for instance_id in sorted(self.judge.reported(installation) & self.cloud.rented.keys()):
                one = self.cloud.rented[instance_id]
                others = {other.name for other in self._all if other is not installation}
                if self.judge.is_followed(instance_id, one):
                    continue
                if one.by in others or not one.by:
                    installation.service.launch_repository.mark_foreign(NAME, instance_id, self.now())
                    self.judge.dismissed.add((installation.name, one.by))
                else:
                    self.counts["ended in the console"] += 1
                    del self.cloud.rented[instance_id]

    # --- the end ------------------------------------------------------------------------------------------------------

    def _rest(self) -> None:
        """Make the cloud honest again: everything is found and ends, or is held."""
        for _, end in sorted(self._later, key=lambda entry: entry[0]):
            end()
        self._later.clear()
        self._ongoing.clear()
        self._key("main.1")
        self.cloud.honest, self.cloud.is_down = True, False
        self._all[0].hung = set()
        for one in self.cloud.rented.values():
            one.omitted = one.hidden = False
            one.denied_until_s = self.cloud.tick_s
        for _ in range(60):  # what runs is ended by its `max_runtime` in that time, too
            self._turn(300.0)
            self._owner_settles()
            if not self._home.alive():
                break
        elsewhere = self.cloud.ordered_with_another_key  # the main account's key cannot follow those
        left = [one for one in self._home.alive() if one.state is not S.HELD and one.launch_id not in elsewhere]
        self.counts["never at rest"] += len(left)
        self.broken += [f"never at rest: {one.launch_id} {one.state} {one.instance_id}" for one in left]
        self.judge.count_orphans()
        self._flush(self._home)

    def _flush(self, one: Installation) -> None:
        """Send what still waits; then every stored alert has arrived."""
        honest, self.cloud.honest = self.cloud.honest, True
        for _ in range(32):
            self.cloud.pass_s(300.0)
            one.look()
        self.cloud.honest = honest
        self.judge.lost_alerts(one)


@contextmanager
def chapter(seed: int) -> Iterator[Chapter]:
    """A cloud and a gpuwatch of their own."""
    logging.disable(logging.CRITICAL)
    random.seed(seed)  # waits of retries and of deliveries
    cloud = Cloud(seed, has_lookup=random.Random(f"{seed} cloud").random() < 0.7)
    with tempfile.TemporaryDirectory() as folder, provided(cloud):
        one = Chapter(Path(folder), cloud, seed)
        try:
            yield one
        finally:
            one.close()
            logging.disable(logging.NOTSET)


def played(seed: int, launches: int) -> tuple[Counter[str], dict[str, int], list[str]]:
    """Return the counts of one chapter, the lies, and what broke."""
    with chapter(seed) as one:
        one.play(launches)
        return one.counts, dict(one.cloud.lies), one.broken
