"""The alerts about a spot machine that its provider takes back. Pure.

`LaunchAlerts.of` (engine) adds the facts of the launch and the fields of `launch_texts`. Each notice is stored with the
launch, and its alert with it, so it is sent once.
"""

from __future__ import annotations

import msgspec

from gpuwatch.domain.alerts.alert import Severity
from gpuwatch.domain.alerts.launch_texts import about_launch

_SAVE = "Save its results now"
TAKEN_BACK = about_launch(
    "its provider takes the machine back {left}",
    ("{provider} announces it for {at}.", "{what}"),
    severity=Severity.CRITICAL,
    once="interruption:{notice}:{launch}",
    did="{follows}",
    can_do=(_SAVE,),
)
TAKEN_FROM_JOB = msgspec.structs.replace(TAKEN_BACK, severity=Severity.WARNING, can_do=())  # its owner need do nothing
AT_RISK = about_launch(
    "its provider may take the machine back soon",
    "{provider} sees a higher risk than usual. It names no time; a notice may follow, minutes before.",
    severity=Severity.WARNING,
    once="interruption:{notice}:{launch}",
    did="Nothing yet.",
    can_do=("Save its results",),
)
SOON = "soon"  # the field `left` without a time
WHAT = {  # by kind: what happens to the machine
    "terminate": "It is destroyed then, with its disk.",
    "stop": "It is stopped then; its disk stays, and is billed.",
    "hibernate": "It hibernates then; its disk stays, and is billed.",
}
NEXT_JOB = (
    "Its job goes back to the queue, and continues on another machine from its newest checkpoint. Where the runner "
    "reads the notice, too, the command gets TERM first, and its last checkpoint is fetched."
)
NEXT_ELSEWHERE = "When it is gone, its watch rents elsewhere (launch.relaunch = true)."
NEXT_OVER = "Nothing. When it is gone, the launch is over."
