"""A few shell lines with which an instance ends itself, even if gpuwatch is gone. Pure.

They rely on this: every container has `CONTAINER_ID` and `CONTAINER_API_KEY`, a key that can destroy this instance,
and `onstart` runs at every start of an ssh or jupyter instance. The vendor's documents say so (docker environment, read
2026-11), and public projects of 2026 end their instances that way; gpuwatch has not tested it.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

from gpuwatch.providers.toolkit.shutdown_timer import with_end

_SHELL: Final = re.compile(r"#!.*\b(?:ba|da|a|k|z)?sh\b.*")

# Inputs: END in Unix seconds, LEFT in seconds from the order, for hosts whose clock is slow.
# `( … & )` hides it from a `wait` in the owner's script, setsid moves it to its own process group; no output.
# curl gets the key over a pipe, python in the environment: no process list shows it.
_LINES: Final = r"""# gpuwatch: this instance ends itself at @WHEN@
(END=@END@ LEFT=@LEFT@ $(command -v setsid) sh -c '
trap "" HUP INT TERM
v() { tr "\0" "\n" </proc/1/environ | sed -n "s/^$1=//p"; }
K=${CONTAINER_API_KEY:-$(v CONTAINER_API_KEY)}
U=${VAST_URL:-https://console.vast.ai}/api/v0/instances/${CONTAINER_ID:-$(v CONTAINER_ID)}/
export K U
ask() {
  if command -v curl; then
    printf "header = \"Authorization: Bearer %s\"\n" "$K" |
      curl -s -m 30 -K - -X "$1" -H "Content-Type: application/json" -d "$2" "$U"
  else
    M=$1 B=$2 $(command -v python3 || command -v python) -c "import os,urllib.request as r
e=os.environ
h={\"Authorization\":\"Bearer \"+e[\"K\"],\"Content-Type\":\"application/json\"}
r.urlopen(r.Request(e[\"U\"],e[\"B\"].encode(),h,method=e[\"M\"]),timeout=30)"
  fi
}
n=0
while [ $n -lt $LEFT ] && [ $(date +%s) -lt $END ]; do sleep 20; n=$((n+20)); done
while :; do
  for i in 1 2 3 4 5; do ask DELETE "{}"; sleep 30; done
  ask PUT "{\"state\":\"stopped\"}"; sleep 30
done' </dev/null >/dev/null 2>&1 &)
"""


def with_self_destruct(script: str, at: datetime, now: datetime) -> str | None:
    """Put the lines that end the instance before the owner's script; None: it is not a shell script.

    Five requests to destroy, then one to stop, which at least ends the GPU's bill; repeated for ever.

    Args:
        script: the owner's; a first line `#!…` stays first.
        at: when it ends.
        now: the time of the order.
    """
    lines = with_end(_LINES, at, now)
    if not script.startswith("#!"):
        return lines + script
    first, _, rest = script.partition("\n")
    return f"{first}\n{lines}{rest}" if _SHELL.fullmatch(first.strip()) else None
