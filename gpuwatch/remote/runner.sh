#!/bin/sh
# gpuwatch's runner: starts one command once on this machine, watches it, and stops it when nobody renews its lease.
# POSIX sh. Besides it: setsid (util-linux, busybox) and /proc; every other tool is of POSIX, but for head -c.
#
#   runner.sh start   RUN WORK LEASE_S DEADLINE_S IDLE_S NOTICES   variables of the command on stdin, as assignments
#   runner.sh observe RUN UNTIL OFFSET BYTES               renews the lease, prints the status and a part of the log
#   runner.sh stop    RUN REASON                           also keeps a run from ever starting
#   runner.sh list    FOLDER PATTERN…                      size, sha256, age and name of files; what is no file
#   runner.sh use                                          GPUs and load, with no run: of any machine
#
# RUN is a folder whose name is the number of the run. It holds:
#   started/  made once, atomically: whatever is repeated, the command starts at most once
#   command   what runs: a shell script
#   lease     until when the command may run, on this machine's uptime: a wrong clock changes nothing
#   status    phase, reason, exit code, heartbeat
#   log       what the command printed
#   notice    what the machine's metadata announces, with NOTICES = imds: its kind and its time; with imds-save, the
#             command is ended then, which lets it save
set -u
PATH=${PATH:-/usr/local/bin:/usr/bin:/bin}
EVERY_S=${GPUWATCH_RUNNER_EVERY_S:-1}
self=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
GRACE_S=${GPUWATCH_RUNNER_GRACE_S:-20} # from TERM to KILL: time to write a last checkpoint
IMDS=${GPUWATCH_RUNNER_IMDS:-http://169.254.169.254}
IMDS_EVERY_S=${GPUWATCH_RUNNER_IMDS_EVERY_S:-5} # as AWS recommends
TAKEN_BACK="the provider takes the machine back"

up() { # seconds, monotonic where the kernel says them
    if [ -r /proc/uptime ]; then
        read -r up_s _ </proc/uptime
        echo "${up_s%%.*}"
    else
        date +%s
    fi
}

number() { # $1 if it is a whole number, else $2
    case ${1:-x} in
    *[!0-9]*) echo "$2" ;;
    *) echo "$1" ;;
    esac
}

lease() {
    read -r until_up 2>/dev/null <"$run/lease" || until_up=0
    until_up=$(number "$until_up" 0)
    while :; do case $until_up in 0?*) until_up=${until_up#0} ;; *) break ;; esac done # 08 is no octal number
    echo "$until_up"
}

renew() { # $1: never earlier than now; in place, because a full disk has no room for a second file
    [ "$1" -gt "$(lease)" ] || return 0
    printf '%012d\n' "$1" | dd of="$run/lease" conv=notrunc 2>/dev/null
}

is_alive() { # $1: a process of this runner; a number that another program has now is not alive
    [ -n "${1:-}" ] && kill -0 "$1" 2>/dev/null || return 1
    [ -r "/proc/$1/cmdline" ] || return 0
    tr '\0' ' ' <"/proc/$1/cmdline" | grep -qF -- "$run "
}

pid_of() { # main, guard or group
    read -r pid_read 2>/dev/null <"$run/$1.pid" || pid_read=
    number "$pid_read" ""
}

write() { # stdin → $run/$1, whole or not at all; a reserve makes room on a full disk
    text=$(cat)
    for _ in 1 2; do
        if printf '%s\n' "$text" 2>/dev/null >"$run/$1.new" && mv -f "$run/$1.new" "$run/$1"; then return 0; fi
        rm -f "$run/reserve" "$run/$1.new"
    done
    return 1
}

status() { # $1: phase, $2: reason, $3: exit code
    write status <<END
phase=$1
reason=$2
exit=$3
heartbeat=$(up)
END
}

ours() { # processes of the command, those that left its group included
    # all at once first: two programs for each process of the machine are a second of a core, several times at each end
    cat /proc/[0-9]*/environ 2>/dev/null | tr '\0' '\n' | grep -qF "GPUWATCH_RUN_FOLDER=$run" || return 0
    for seen in /proc/[0-9]*; do
        tr '\0' '\n' 2>/dev/null <"$seen/environ" | grep -qxF "GPUWATCH_RUN_FOLDER=$run" && echo "${seen#/proc/}"
    done
    true
}

outside() { # $1: a process group; processes of the command that left it: the group's signal does not reach them
    for one in $(ours); do
        # shellcheck disable=SC2046 # state, parent, group
        set -- "$1" $(sed 's/.*) //' "/proc/$one/stat" 2>/dev/null)
        [ "${4:-$1}" = "$1" ] || echo "$one"
    done
}

end_command() { # TERM once to each process, a time to save, KILL
    group=$(pid_of group)
    left=$(outside "$group")
    # shellcheck disable=SC2086 # one number a word
    [ -n "$left" ] && kill -s TERM $left 2>/dev/null
    [ -n "$group" ] && kill -s TERM -- "-$group" 2>/dev/null
    waited=0
    while [ "$waited" -lt "$GRACE_S" ] && [ -n "$(ours)" ]; do
        sleep 1
        waited=$((waited + 1))
    done
    [ -n "$group" ] && kill -s KILL -- "-$group" 2>/dev/null
    for _ in 1 2 3; do
        left=$(ours)
        [ -z "$left" ] && return
        # shellcheck disable=SC2086 # one number a word
        kill -s KILL $left 2>/dev/null
    done
}

# --- start ------------------------------------------------------------------------------------------------------------
start() {
    umask 077
    trap '' HUP
    command -v setsid >/dev/null || { echo "setsid is missing on the machine" >&2; exit 3; }
    for other in "$run"/../*/; do
        other=$(number "$(basename "$other")" 0)
        [ "$other" -gt "$(basename "$run")" ] && { echo "run $other of this job came after this one" >&2; exit 4; }
    done
    for other in "$run"/../*/; do
        [ "$(number "$(basename "$other")" 999999999)" -lt "$(basename "$run")" ] && stop_other "$other"
    done
    mkdir -p "$work" || exit 3
    mkdir "$run/started" 2>/dev/null || { echo already; return; }
    echo $$ | write main.pid # until it has handed over: a machine that is slow to start is not one that died
    eval "$(cat)" || exit 3
    printf '%012d\n' "$(($(up) + lease_s))" >"$run/lease"
    printf '%065536d\n' 0 >"$run/reserve"
    setsid sh "$self" supervise "$run" "$work" "$deadline_s" "$idle_s" "$notices" </dev/null >>"$run/runner.log" 2>&1 &
    echo $! | write main.pid
    echo started
}

stop_other() (
    run=$(cd "$1" && pwd) || exit
    stop "a later run began"
    end_command
)

stop() {
    mkdir "$run/started" 2>/dev/null && status ended "$1" ""
    echo "$1" | write stop
}

# --- supervise: two processes watch the command and each other --------------------------------------------------------
supervise() {
    [ "$(phase)" = ended ] && exit # somebody took this run for dead
    echo $$ | write main.pid
    cd "$work" || exit 3
    GPUWATCH_RUN_FOLDER=$run setsid sh "$run/command" </dev/null >>"$run/log" 2>&1 &
    child=$!
    echo "$child" | write group.pid
    trap 'echo "the machine is being stopped" | write stop' TERM INT
    began=$(up)
    last_use=$began
    size=0
    start_guard
    case $notices in imds*) sh "$self" notices "$run" $$ "$notices" </dev/null >>"$run/runner.log" 2>&1 & ;; esac
    while kill -0 "$child" 2>/dev/null; do
        status running "" ""
        why=$(why_stop)
        [ -n "$why" ] && break
        is_alive "$guard" || start_guard
        sleep "$EVERY_S"
        grown=$(wc -c <"$run/log" 2>/dev/null || echo 0)
        if [ "$idle_s" -gt 0 ] && { [ "$grown" -ne "$size" ] || is_gpu_busy; }; then
            size=$grown
            last_use=$(up)
        fi
    done
    why=${why:-}
    [ "$why" = "$TAKEN_BACK" ] && GRACE_S=$((GRACE_S * 3)) # half of the two minutes; the rest is to fetch what it saved
    [ -n "$why" ] && { status stopping "$why" ""; end_command; }
    wait "$child"
    code=$?
    [ -z "$why" ] && [ "$code" -gt 128 ] && why=$(why_stop) # somebody else saw the reason first
    status ended "${why:-exit}" "$code"
    end_command # what it left behind in the background
    kill "$guard" 2>/dev/null
}

why_stop() { # a line, or nothing
    now=$(up)
    if [ -e "$run/stop" ]; then
        head -n 1 "$run/stop"
    elif [ "$now" -gt "$(lease)" ]; then
        echo lease
    elif [ "$deadline_s" -gt 0 ] && [ "$((now - began))" -ge "$deadline_s" ]; then
        echo deadline
    elif [ "$idle_s" -gt 0 ] && [ "$((now - last_use))" -ge "$idle_s" ]; then
        echo idle
    fi
}

is_gpu_busy() { gpu_rows | grep -q '^ *[1-9]'; }

start_guard() {
    sh "$self" guard "$run" $$ </dev/null >>"$run/runner.log" 2>&1 &
    guard=$!
    echo "$guard" | write guard.pid
}

guard() { # $1: the main process; without it, or without a lease, the command ends
    trap '' TERM
    while sleep "$EVERY_S"; do
        [ "$(phase)" = ended ] && exit
        if ! is_alive "$1"; then
            end_command
            [ "$(phase)" = ended ] || status ended "the runner was killed" ""
            exit
        fi
        if [ "$(up)" -gt "$(($(lease) + 5))" ]; then end_command; fi # the main process hangs
    done
}

phase() { sed -n 's/^phase=//p' "$run/status" 2>/dev/null; }

# --- notices: what EC2's metadata service (IMDSv2) announces to a spot machine -----------------------------------------
notices() { # $1: the main process, $2: imds or imds-save; asks until the run ends, or until the machine certainly goes
    command -v curl >/dev/null || { echo "curl is missing on the machine: its notices are not read"; return; }
    while is_alive "$1" && [ "$(phase)" != ended ]; do
        answer=$(metadata spot/instance-action)
        kind=$(say "$answer" | json action '[a-z]\{1,20\}')
        case $kind in
        terminate | stop | hibernate)
            say "$kind $(say "$answer" | json time '[0-9TZ:.+-]\{1,40\}')" | write notice
            case $2 in *-save) [ -e "$run/stop" ] || say "$TAKEN_BACK" | write stop ;; esac
            return
            ;;
        esac
        if [ ! -e "$run/notice" ]; then
            at=$(metadata events/recommendations/rebalance | json noticeTime '[0-9TZ:.+-]\{1,40\}')
            [ -z "$at" ] || say rebalance | write notice
        fi
        sleep "$IMDS_EVERY_S"
    done
}

json() { # stdin: JSON of one level, $1: a name, $2: what its text looks like
    tr -d '\n' | sed -n "s/.*\"$1\" *: *\"\($2\)\".*/\1/p"
}

metadata() { # $1: a path; the answer, or nothing: before there is a notice it is 404
    token=$(ask -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 300' "$IMDS/latest/api/token" | tr -cd 'A-Za-z0-9=_+/.-')
    [ -z "$token" ] || ask -H "X-aws-ec2-metadata-token: $token" "$IMDS/latest/meta-data/$1"
}

ask() { # within seconds, and a few lines at most
    curl -fs --noproxy '*' --max-time 4 "$@" 2>/dev/null | head -c 2000 | tr -d '\0'
}

# --- observe ----------------------------------------------------------------------------------------------------------
observe() { # $1: lease until, $2: bytes of the log that are known, $3: bytes at most
    [ "$1" -gt 0 ] && renew "$1"
    if [ -d "$run/started" ] && [ "$(phase)" != ended ] && ! is_alive "$(pid_of main)" && ! is_alive "$(pid_of guard)"; then
        sleep 2 # it may be starting just now, or ending
        if [ "$(phase)" != ended ] && ! is_alive "$(pid_of main)" && ! is_alive "$(pid_of guard)"; then
            end_command
            status ended "the runner was killed" ""
        fi
    fi
    size=$(wc -c 2>/dev/null <"$run/log" || echo 0)
    part=$((size - $2))
    [ "$part" -lt 0 ] && part=0
    [ "$part" -gt "$3" ] && part=$3
    echo "gpuwatch-runner=1"
    echo "run=$(basename "$run")"
    [ -d "$run/started" ] && echo started=1
    head -c 2000 "$run/status" 2>/dev/null
    [ -e "$run/notice" ] && echo "notice=$(head -c 80 "$run/notice" | head -n 1)"
    echo "up=$(up)"
    echo "lease=$(lease)"
    echo "disk_free_kib=$(df -Pk "$run" 2>/dev/null | awk 'NR == 2 { print $4 }')"
    use
    echo "log_size=$((size))"
    echo "log_bytes=$part"
    echo
    tail -c "+$(($2 + 1))" "$run/log" 2>/dev/null | head -c "$part"
    cd "$work" 2>/dev/null || return 0
    for file in metrics.jsonl */metrics.jsonl trainer_state.json */trainer_state.json */checkpoint-*/trainer_state.json; do
        [ -f "$file" ] && progress_file=$file
    done
    [ -n "${progress_file:-}" ] && tail -c 16000 "$progress_file"
    true
}

use() { # what the machine is busy with: one line a figure
    gpu_rows | head -n 65 | sed 's/, */,/g; s/^/gpu=/'
    [ -r /proc/loadavg ] && echo "load=$(cut -d ' ' -f 1 /proc/loadavg)"
    cpus=$(getconf _NPROCESSORS_ONLN 2>/dev/null) && echo "cpus=$cpus"
    [ -r /proc/stat ] && awk '$1 == "cpu" { print "cpu_jiffies=" $2 + $3 + $4 "," $5 "," $6 }' /proc/stat
    true
}

gpu_rows() { # a line a GPU, as nvidia-smi prints it: use in percent, used and total MiB, name
    if command -v nvidia-smi >/dev/null; then
        nvidia-smi --query-gpu=utilization.gpu,memory.used,memory.total,name --format=csv,noheader,nounits 2>/dev/null
        return
    fi
    rocm=$PATH:/opt/rocm/bin # where AMD's packages install, and no login shell looks
    rows=$(
        PATH=$rocm
        { amd-smi static --asic --json; amd-smi metric --usage --mem-usage --json; } 2>/dev/null | amd_rows
    )
    [ -n "$rows" ] || rows=$( # older machines have only this one; newer ones lack it
        PATH=$rocm
        rocm-smi --showproductname --showuse --showmeminfo vram --json 2>/dev/null | amd_rows
    )
    [ -z "$rows" ] || say "$rows"
}

amd_rows() { # stdin: JSON of amd-smi or rocm-smi; whatever else they print there is passed over
    tr '{},' '\n\n\n' | awk '
        BEGIN { FS = "\""; key["gfx_activity"] = key["GPU use (%)"] = "use"
            key["used_vram"] = key["VRAM Total Used Memory (B)"] = "used"
            key["total_vram"] = key["VRAM Total Memory (B)"] = "total"
            key["market_name"] = key["Card Series"] = key["Card series"] = "name" }
        function field(name) { return (at, name) in found ? found[at, name] : "N/A" }
        NF < 2 { next }
        { text = $4; if (NF < 4) { text = $3; gsub(/[^0-9.]/, "", text) } } # a number stands without quotes
        $2 ~ /^card[0-9]+$/ { at = $2 }
        $2 == "gpu" && text != "" { at = text }
        at != "" && !(at in known) { known[at]; order[++gpus] = at }
        $2 == "value" && name != "" && text != "" { found[at, name] = text } # of the key before it
        { name = "" }
        at != "" && $2 in key {
            name = key[$2]
            if ($2 ~ /[(]B[)]$/ && text ~ /^[0-9]+$/) text = sprintf("%.0f", text / 1048576)
            if (text != "") { found[at, name] = text; name = "" }
        }
        END { for (i = 1; i <= gpus; i++) { at = order[i]
            print field("use") ", " field("used") ", " field("total") ", " field("name") } }'
}

# --- files ------------------------------------------------------------------------------------------------------------
# A line a file: size, sha256, age, name. What has no content that can be fetched: !, kind, name, and for a link to a
# folder where it leads to. A name with other characters than these is written in octal: it may hold line breaks.
list() { # $@: patterns below the folder; folders are walked
    cd "$work" 2>/dev/null || return 0
    LC_ALL=C root=$(pwd -P)
    export LC_ALL root
    now=$(date +%s)
    IFS= # a pattern may hold spaces
    for pattern in "$@"; do
        # shellcheck disable=SC2086 # a pattern of the owner, below a folder
        for name in $pattern; do
            [ -e "$name" ] || [ -L "$name" ] || continue
            [ "$name" = "$pattern" ] && [ -d "$name" ] && name=${name%/}/ # a folder that is named is meant, link or not
            find "./$name" -exec sh "$self" entries {} +
        done
        hidden "$pattern"
    done 2>/dev/null | sort -u | head -n 20001 | while read -r line; do
        name=${line#* }
        case $line in "file "*) ;; *) say "! $line"; continue ;; esac
        # shellcheck disable=SC2059 # octal
        case $name in \\*) path=$(printf "$name."); path=${path%.} ;; *) path=$name ;; esac
        sum=$(sha256sum 2>/dev/null <"$path") || { [ ! -e "$path" ] || say "! unreadable $name"; continue; }
        size=$(wc -c 2>/dev/null <"$path") || continue # it is gone meanwhile
        changed=$(stat -L -c %Y "$path" 2>/dev/null || echo "$now")
        say "$((size)) ${sum%% *} $((now - changed)) $name"
    done
}

entries() { # $@: what find found
    for one in "$@"; do
        case $one in */) is_link= ;; *) [ -L "$one" ] && is_link=1 || is_link= ;; esac
        if [ -z "$is_link" ] && [ -d "$one" ]; then
            if ! [ -r "$one" ] || ! [ -x "$one" ]; then say "unreadable $(encoded "$one")"; fi
            [ -n "$(ls -A "$one")" ] || say "empty $(encoded "${one%/}")"
        elif ! [ -e "$one" ]; then
            [ -z "$is_link" ] || say "broken $(encoded "$one")"
        elif [ -d "$one" ]; then
            leads_to=$(readlink -f "$one")
            say "folder $(encoded "$one") $(encoded "${leads_to#"$root"/}")"
        elif ! [ -f "$one" ]; then
            say "special $(encoded "$one")"
        elif [ -n "$is_link" ]; then
            case $(readlink -f "$one") in
            "$root"/*) say "file $(encoded "$one")" ;;
            *) say "outside $(encoded "$one")" ;;
            esac
        else
            case $one in *[!A-Za-z0-9_./-]*) say "file $(encoded "$one")" ;; *) say "file $one" ;; esac
        fi
    done
}

hidden() { # files that a pattern such as out/* leaves out
    case $1 in */*) parent=${1%/*}/ last=${1##*/} ;; *) parent='' last=$1 ;; esac
    case $last in [*?[]*) ;; *) return ;; esac
    # shellcheck disable=SC2086 # as above
    for name in $parent.$last; do
        case ${name##*/} in . | ..) continue ;; esac
        [ ! -e "$name" ] || say "hidden $(encoded "./$name")"
    done
}

say() { printf '%s\n' "$1"; } # echo would read the octal

encoded() { # $1: a name; as it is, or each byte in octal
    case $1 in
    *[!A-Za-z0-9_./-]*) printf %s "$1" | od -An -v -to1 | tr -d '\n' | sed 's/  */\\/g' ;;
    *) printf %s "$1" ;;
    esac
}

absolute() { # a folder, from the home of the user where it is relative
    case $1 in /*) echo "$1" ;; *) echo "$(pwd -P)/$1" ;; esac
}

what=${1:-}
[ $# -gt 0 ] && shift
case $what in
start) run=$(absolute "$1") work=$(absolute "$2") lease_s=$3 deadline_s=$4 idle_s=$5 notices=${6:-none}; start ;;
supervise) run=$1 work=$2 deadline_s=$3 idle_s=$4 notices=${5:-none}; supervise ;;
notices) run=$1; notices "$2" "$3" ;;
guard) run=$1; guard "$2" ;;
observe) run=$(absolute "$1") work=$(absolute "$2"); observe "$3" "$4" "$5" ;;
stop) run=$(absolute "$1"); stop "$2" ;;
list) run= work=$1; shift; list "$@" ;;
entries | use) "$what" "$@" ;;
*) echo "runner.sh start|observe|stop|list|use" >&2; exit 2 ;;
esac
