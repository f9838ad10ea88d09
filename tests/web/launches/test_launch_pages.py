"""A launch that a command rented."""

from __future__ import annotations

from sqlalchemy import insert

from gpuwatch.bootstrap import real_now
from gpuwatch.domain.launches.launch import COMMAND_PLACE, Intent, LaunchState, new_launch
from gpuwatch.domain.watches.launch_spec import LaunchSpec
from gpuwatch.domain.watches.watch import Action
from gpuwatch.storage.setup.database import open_database
from gpuwatch.storage.setup.launch_rows import launch_row_of
from gpuwatch.storage.setup.tables import launch as launches
from tests.builders import a_match, a_watch, changed
from tests.web.served import Served, page


def test_what_a_command_rented_has_no_button_that_could_not_end_it(web: Served) -> None:
    watch, at = a_watch(action=Action.LAUNCH, launch=LaunchSpec()), real_now()
    intent = Intent(watch=watch, match=a_match(), launch_id="a" * 12, dry_run=False)
    plain = new_launch(intent, 0, at)
    store = open_database(web.context.settings.database_url)
    with store.write() as connection:
        connection.execute(
            insert(launches), launch_row_of(changed(plain, provider=COMMAND_PLACE, state=LaunchState.RUNNING))
        )
    store.close()
    web.log_in()
    shown = page(web, f"/launches/{'a' * 12}")
    assert f"gpuwatch launches resolve {'a' * 12} --absent" in shown
    assert "/stop" not in shown
