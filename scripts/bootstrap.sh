# The other scripts source this file. It makes .venv and installs what is missing: as root with apt;
# otherwise a message names the packages.

repo=$(cd "$(dirname "$0")/.." && pwd)
venv=${LAZYCK_VENV:-$repo/.venv}

say() { printf 'lazyck: %s\n' "$*" >&2; }

# say_while TEXT COMMAND...: says TEXT, and while COMMAND runs, every few seconds, for how long it has.
# Its status is that of COMMAND.
say_while() {
    text=$1
    shift
    say "$text"
    # A background process ignores Ctrl-C. So this one looks whether the script still runs. Its sleep
    # outlives it, and must not keep open what a reader of the script's output waits for.
    (
        seconds=0
        while sleep 4 </dev/null >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do
            seconds=$((seconds + 4))
            say "$text ($seconds s so far)"
        done
    ) &
    speaker=$!
    status=0
    "$@" || status=$?
    kill "$speaker" 2>/dev/null || true
    wait "$speaker" 2>/dev/null || true
    return "$status"
}

# need COMMAND PACKAGE...: installs PACKAGEs unless COMMAND succeeds. Where `missing` is set, adds them
# to it instead.
need() {
    probe=$1
    shift
    if sh -c "$probe" >/dev/null 2>&1; then return 0; fi
    if [ -n "${missing+set}" ]; then
        missing="$missing $*"
    elif [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        if [ -z "${apt_updated:-}" ]; then
            say_while "fetching the list of packages (apt)" apt-get update -qq >/dev/null
            apt_updated=1
        fi
        say_while "installing $* (apt)" \
            env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
    else
        say "missing: $*; as root: apt-get install $*"
        return 1
    fi
}

# want COMMAND PACKAGE...: does what need does, but goes on without packages that the distribution
# lacks. The tests that need them are skipped with a message.
want() {
    if ! need "$@"; then
        shift
        say "going on without: $*"
    fi
}

# want_server COMMAND PACKAGE...: does what want does, but lets no package start a server.
want_server() {
    policy=/usr/sbin/policy-rc.d
    if [ "$(id -u)" = 0 ] && [ -d "${policy%/*}" ] && [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' > "$policy"
        chmod 755 "$policy"
        want "$@"
        rm "$policy"
    else
        want "$@"
    fi
}

# make_venv EXTRA [LARGER]: makes the virtual environment, with the packages of lazyck[EXTRA] unless
# it has those of lazyck[LARGER], which contain them.
make_venv() {
    need 'python3 -c "import sys; sys.exit(sys.version_info < (3, 10))"' python3 || exit 1
    need 'python3 -c "import ensurepip, venv"' python3-venv || exit 1
    if [ ! -x "$venv/bin/python" ]; then
        say_while "making a virtual environment in $venv" python3 -m venv "$venv"
    fi
    if ! has_extra "$1" && ! has_extra "${2:-$1}"; then
        say_while "installing lazyck[$1] (pip)" \
            "$venv/bin/python" -m pip install -q --disable-pip-version-check -e "$repo[$1]"
        touch "$venv/.lazyck-$1"
    fi
    PATH="$venv/bin:$PATH"
    export PATH
}

has_extra() { [ -f "$venv/.lazyck-$1" ] && ! [ "$repo/pyproject.toml" -nt "$venv/.lazyck-$1" ]; }
