"""A few shell lines with which a pod ends itself, even if gpuwatch is gone. Pure.

They rely on this: RunPod puts `runpodctl`, `RUNPOD_POD_ID` and a key that is scoped to this pod into every pod. The
vendor's documents say so (environment variables, runpodctl; read 2026-11) and show `runpodctl stop pod
$RUNPOD_POD_ID` in a pod. They do not state the permissions of the key. Public projects of 2026 report that `runpodctl
remove pod` of the own pod works, and that the key has no other permission; gpuwatch has not tested it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from gpuwatch.providers.toolkit.shutdown_timer import with_end

# Inputs: END in Unix seconds, LEFT in seconds from the order, for hosts whose clock is slow. The injected runpodctl may
# support only the old word order, or only the new one. curl gets the key over a pipe: no process list shows it.
_LINES: Final = r"""# gpuwatch: this pod ends itself at @WHEN@
(END=@END@ LEFT=@LEFT@ $(command -v setsid) sh -c '
trap "" HUP INT TERM
v() { tr "\0" "\n" </proc/1/environ | sed -n "s/^$1=//p"; }
I=${RUNPOD_POD_ID:-$(v RUNPOD_POD_ID)}
RUNPOD_API_KEY=${RUNPOD_API_KEY:-$(v RUNPOD_API_KEY)}
export RUNPOD_API_KEY
T=; command -v timeout && T="timeout 60"
n=0
while [ $n -lt $LEFT ] && [ $(date +%s) -lt $END ]; do sleep 20; n=$((n+20)); done
while :; do
  for i in 1 2 3; do
    $T runpodctl remove pod "$I" || $T runpodctl pod delete "$I" ||
      printf "header = \"Authorization: Bearer %s\"\n" "$RUNPOD_API_KEY" |
      curl -sf -m 30 -K - -X DELETE "https://api.runpod.io/v2/pods/$I"
    sleep 60
  done
  $T runpodctl stop pod "$I" || $T runpodctl pod stop "$I"; sleep 60
done' </dev/null >/dev/null 2>&1 &)
"""


def self_destruct_lines(at: datetime, now: datetime) -> str:
    """Return lines to put before a start script: they delete the pod, three attempts, then stop it; repeated for ever.

    Args:
        at: when it ends.
        now: the time of the order.
    """
    return with_end(_LINES, at, now)
