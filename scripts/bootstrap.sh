# The other scripts source this file. It makes .venv and installs what is missing: as root with apt;
# otherwise a message names the packages.

repo=$(cd "$(dirname "$0")/.." && pwd)
venv=${LAZYCK_VENV:-$repo/.venv}

say() { printf 'lazyck: %s\n' "$*" >&2; }

# need COMMAND PACKAGE...: installs PACKAGEs unless COMMAND succeeds.
need() {
    probe=$1
    shift
    if sh -c "$probe" >/dev/null 2>&1; then return 0; fi
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        say "installing $* (apt)"
        if [ -z "${apt_updated:-}" ]; then
            apt-get update -qq >/dev/null
            apt_updated=1
        fi
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
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

make_venv() {
    need 'python3 -c "import sys; sys.exit(sys.version_info < (3, 10))"' python3 || exit 1
    need 'python3 -c "import ensurepip, venv"' python3-venv || exit 1
    if [ ! -x "$venv/bin/python" ]; then
        say "making a virtual environment in $venv"
        python3 -m venv "$venv"
    fi
    stamp="$venv/.lazyck-$1"
    if [ ! -f "$stamp" ] || [ "$repo/pyproject.toml" -nt "$stamp" ]; then
        say "installing lazyck and its Python packages"
        "$venv/bin/python" -m pip install -q --disable-pip-version-check -e "$repo[$1]"
        touch "$stamp"
    fi
    PATH="$venv/bin:$PATH"
    export PATH
}
