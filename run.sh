#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One script from a fresh Debian 12 to a running batch job:
#
#   ./run.sh demo      install what is missing, build, run the demo job (models/demo-opt)
#   ./run.sh test      install what is missing, build and test everything (what CI runs); options go to scripts/test.py
#   ./run.sh build     install what is missing, build into build/; build/penstock is the program
#   ./run.sh deps      only install: add "test" or "bench" for what the tests or the benchmarks want as well
#
# Only Debian packages are installed, and only those that are not there yet.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

build_pkgs="gcc libc6-dev meson ninja-build pkg-config python3 libjansson-dev libxxhash-dev libpcre2-dev
  libutf8proc-dev libnuma-dev liburing-dev"
test_pkgs="git g++ python3-numpy libcmocka-dev clang-14 clang-format-14 libclang-rt-14-dev llvm-14 valgrind libc6-dbg"
bench_pkgs="fio libopenblas-dev python3-venv python3-matplotlib"

have() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

install_missing() {
    local p missing=() as_root=()
    if ! command -v dpkg-query >/dev/null; then
        echo "run.sh: this is not a Debian system; install what stands for these, then use meson by hand: $*" >&2
        return
    fi
    for p in "$@"; do have "$p" || missing+=("$p"); done
    [ ${#missing[@]} -gt 0 ] || return 0
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null || { echo "run.sh: as root, please: apt-get update && apt-get install --no-install-recommends ${missing[*]}" >&2; exit 1; }
        as_root=(sudo)
    fi
    echo "run.sh: installing ${missing[*]}" >&2
    # One failing mirror line must not end it: the install says what is really missing.
    "${as_root[@]}" apt-get -q update >&2 || true
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends "${missing[@]}" >&2
}

build() {
    [ -f build/build.ninja ] || meson setup build -Dtests=false >&2
    ninja -C build >&2
}

command=${1:-help}
[ $# -eq 0 ] || shift
case $command in
    deps)
        pkgs=$build_pkgs
        for what in "$@"; do
            case $what in
                test) pkgs="$pkgs $test_pkgs" ;;
                bench) pkgs="$pkgs $bench_pkgs" ;;
                *) echo "run.sh deps: '$what' is neither test nor bench" >&2; exit 2 ;;
            esac
        done
        install_missing $pkgs
        ;;
    build)
        install_missing $build_pkgs
        build
        ;;
    demo)
        install_missing $build_pkgs
        build
        exec python3 scripts/demo.py build "$@"
        ;;
    test)
        install_missing $build_pkgs $test_pkgs
        # Debian's own python3: python3-numpy is for that one.
        exec "$(PATH="/usr/bin:$PATH" command -v python3)" scripts/test.py "$@"
        ;;
    help | -h | --help) sed -n '3,/^set /s/^# \{0,1\}//p' "$0" ;;
    *) echo "run.sh: unknown command '$command'; ./run.sh help lists them" >&2; exit 2 ;;
esac
