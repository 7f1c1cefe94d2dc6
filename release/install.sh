#!/bin/sh
# Installs wf-run @VERSION@ for one user, without root: downloads the archive for this system, compares its
# SHA-256, unpacks it, tries the program, and only then puts it in place.
#
#     sh install.sh [--prefix FOLDER]      the program becomes FOLDER/bin/wf-run; default: ~/.local
#     sh install.sh --uninstall            removes it
#
# WF_PREFIX stands for --prefix, and WF_BASE names another address of the archives, such as a mirror.
# Needs sh, curl or wget, tar, gzip, and one of sha256sum, shasum and openssl.
set -eu

version='@VERSION@'
base='@BASE@'
# The oldest C library and the oldest macOS that the programs run on.
glibc_minor=28
macos_major=11

# say LINE…
say() { printf '%s\n' "$@"; }

# fail MESSAGE…: ends with one message, a line each.
fail() {
    printf 'install.sh: %s\n' "$1" >&2
    shift
    [ $# = 0 ] || printf '  %s\n' "$@" >&2
    exit 1
}

has() { command -v "$1" > /dev/null 2>&1; }

need() { has "$1" || fail "$1 is missing" "install it with your system's packages, then run this again"; }

# at_least NUMBER TEXT: true if TEXT begins with a number that is not smaller.
at_least() {
    found=${2%%[!0-9]*}
    [ -n "$found" ] && [ "$found" -ge "$1" ]
}

# new_glibc: true if programs for glibc run here. A static program runs on all other systems.
new_glibc() {
    library=$(getconf GNU_LIBC_VERSION 2> /dev/null) || library=
    case $library in
    glibc\ 2.*) at_least $glibc_minor "${library#glibc 2.}" ;;
    *)
        library=$(ldd --version 2>&1 | head -n 1) || library=
        case $library in
        *GLIBC*\ 2.* | *GNU\ libc*\ 2.*) at_least $glibc_minor "${library##* 2.}" ;;
        *) false ;;
        esac
        ;;
    esac
}

# no_archive SYSTEM: ends because nothing is published for it.
no_archive() {
    fail "there is no archive of wf-run for $1" \
        "archives: Linux on x86-64 (glibc or musl), Linux on 64-bit ARM (glibc 2.$glibc_minor or newer)," \
        "macOS $macos_major or newer, Windows on x86-64" \
        "from source, with Rust: cargo install wf-run --locked"
}

# target: prints the name that this system's archive has.
target() {
    system=$(uname -s) machine=$(uname -m)
    case $system in
    Linux)
        # A 64-bit kernel may run a 32-bit system, whose loader knows no 64-bit programs.
        [ "$(getconf LONG_BIT 2> /dev/null)" != 32 ] || machine="$machine with 32-bit programs"
        case $machine in
        x86_64 | amd64) if new_glibc; then echo linux-x86_64; else echo linux-x86_64-musl; fi ;;
        'x86_64 with 32-bit programs') echo linux-x86_64-musl ;;
        aarch64 | arm64)
            new_glibc || no_archive "Linux on $machine without glibc 2.$glibc_minor"
            echo linux-aarch64
            ;;
        *) no_archive "Linux on $machine" ;;
        esac
        ;;
    Darwin)
        release=$(sw_vers -productVersion 2> /dev/null) || release=
        [ -z "$release" ] || at_least $macos_major "$release" || no_archive "macOS $release"
        echo macos-universal
        ;;
    MINGW* | MSYS* | CYGWIN*)
        fail "this is Windows: use PowerShell" "irm $base/install.ps1 | iex"
        ;;
    *) no_archive "$system on $machine" ;;
    esac
}

# full: ends if nothing can be written to the work folder any more.
full() {
    if ! { echo probe > "$work/probe"; } 2> /dev/null; then
        fail "cannot write to $work" "is the disk full, or over your quota? --prefix FOLDER takes another place"
    fi
}

# to_stdout URL: an attempt to download.
to_stdout() {
    if [ "$downloader" = curl ]; then
        # Addresses that begin with https are not left for others.
        case $1 in https:*) safe="--proto =https --tlsv1.2" ;; *) safe= ;; esac
        # shellcheck disable=SC2086
        curl --fail --location --silent --show-error $safe --connect-timeout 20 --speed-limit 1 --speed-time 60 "$1"
    else
        # shellcheck disable=SC2086
        wget -q $wget_options -O - "$1"
    fi
}

# fetch NAME: downloads a file into the work folder, with a second attempt.
fetch() {
    # The shell writes the file: some packages of curl cannot write to hidden folders.
    to_stdout "$base/$1" > "$work/$1" && return
    full
    sleep 1
    to_stdout "$base/$1" > "$work/$1" && return
    code=$?
    full
    fail "could not download $base/$1" \
        "$downloader ended with code $code: is the network up, and does this address answer?" \
        "WF_BASE=ADDRESS takes the files from elsewhere"
}

# digest FILE: prints its SHA-256.
digest() {
    case $hasher in
    shasum) shasum -a 256 < "$1" ;;
    openssl) openssl dgst -sha256 -r < "$1" ;;
    *) sha256sum < "$1" ;;
    esac | cut -c 1-64
}

# check NAME: compares a downloaded file with its line in SHA256SUMS.
check() {
    pattern=$(printf '%s' "$1" | sed 's/\./\\./g')
    expected=$(sed -n "s/^\([0-9a-f]\{64\}\) [ *]$pattern\$/\1/p" "$work/SHA256SUMS")
    [ ${#expected} = 64 ] || fail "$base/SHA256SUMS has no line for $1" "does this address have another version?"
    found=$(digest "$work/$1")
    [ "$found" = "$expected" ] || fail "$1 is not what was published: its SHA-256 differs" \
        "expected $expected" "found    $found" \
        "the download was cut or changed; nothing was installed. Run this again, later or on another network"
}

# clean: removes the work folder, also after an error or a signal.
clean() { [ -z "${work:-}" ] || rm -rf "$work"; }

# leftovers: removes work folders of installations that were killed.
leftovers() {
    for folder in "$prefix"/.wf-run-install.*; do
        [ -d "$folder" ] || continue
        kill -0 "${folder##*.}" 2> /dev/null || rm -rf "$folder"
    done
}

# version_of PROGRAM: prints the version of an installed program.
version_of() { "$1" --version 2> /dev/null | head -n 1 | sed 's/^wf-run //; s/ .*//'; }

# prepare: finds the tools, and makes the work folder in the place where the program will be.
prepare() {
    if has curl; then downloader=curl
    elif has wget; then downloader=wget
    else fail "curl and wget are missing" "install one of them with your system's packages, then run this again"; fi
    # GNU's wget tries twenty times by itself. Busybox has a limit of time, or crashes on that option.
    wget_options=
    if [ $downloader = wget ]; then
        case $(wget --help 2>&1) in
        *--tries*) wget_options='-t 1 -T 60' ;;
        *-T\ SEC*) wget_options='-T 60' ;;
        esac
    fi
    if has sha256sum; then hasher=sha256sum
    elif has shasum; then hasher=shasum
    elif has openssl; then hasher=openssl
    else fail "sha256sum, shasum and openssl are missing" "install one of them, then run this again"; fi
    need tar
    need gzip
    [ ! -d "$program" ] || fail "$program is a folder" "remove it, or take another place: --prefix FOLDER"
    if ! mkdir -p "$prefix/bin" "$prefix/share/doc" 2> /dev/null || [ ! -w "$prefix/bin" ] || [ ! -w "$prefix/share/doc" ]; then
        fail "cannot write to $prefix" "take another place: --prefix FOLDER"
    fi
    leftovers
    work=$prefix/.wf-run-install.$$
    mkdir "$work" 2> /dev/null || fail "cannot make the folder $work" "take another place: --prefix FOLDER"
}

# unpack ARCHIVE: unpacks it and tries the program.
unpack() {
    tar -xzf "$work/$1" -C "$work" || { full; fail "tar cannot unpack $1"; }
    unpacked=$work/${1%.tar.gz}
    chmod 755 "$unpacked/wf-run" || fail "$1 holds no program"
    answer=$("$unpacked/wf-run" --version 2>&1) || fail "the program of $1 does not run here" "$answer" \
        "may programs run from $prefix? Another place: --prefix FOLDER"
}

# put_in_place: the last step is one rename, so there is always an old or a new program.
put_in_place() {
    cp "$unpacked/wf-run" "$work/program" || { full; fail "cannot copy the program"; }
    chmod 755 "$work/program"
    rm -f "$unpacked/wf-run"
    rm -rf "$documents"
    mv "$unpacked" "$documents" || fail "cannot write to $documents"
    mv -f "$work/program" "$program" || fail "cannot replace $program"
}

# advise: says what to type.
advise() {
    say "wf-run $version is installed: $program$1" ""
    found=$(command -v wf-run 2> /dev/null) || found=
    if [ "$found" = "$program" ]; then command=wf-run
    else
        command=$program
        case ":$PATH:" in
        *":$prefix/bin:"*) say "$found comes first in PATH." "" ;;
        *) say "To call it wf-run, put this line into your shell's profile:" "    export PATH=\"$prefix/bin:\$PATH\"" "" ;;
        esac
    fi
    say "Try it:" "    $command generate \"Tell me a story about a fox named Pip.\"" \
        "    $command serve      # a chat page and an API at http://127.0.0.1:30000"
}

install() {
    name=wf-run-$version-$(target)
    prepare
    old=
    [ ! -x "$program" ] || old=$(version_of "$program") || old=
    [ -z "$old" ] || old=" (it replaces $old)"
    say "downloading $name.tar.gz"
    fetch SHA256SUMS
    fetch "$name.tar.gz"
    check "$name.tar.gz"
    unpack "$name.tar.gz"
    put_in_place
    advise "$old"
}

uninstall() {
    leftovers
    if [ ! -e "$program" ] && [ ! -e "$documents" ]; then
        say "there is no wf-run in $prefix"
        return
    fi
    [ -e "$documents/THIRD_PARTY.md" ] ||
        fail "$program was not installed by this script" "remove it the way it came, or delete the file"
    rm -f "$program" || fail "cannot remove $program"
    rm -rf "$documents" || fail "cannot remove $documents"
    say "wf-run is removed from $prefix" \
        "Downloaded models stay: in $(models), which other programs may share."
}

# models: prints the folder of downloaded models.
models() {
    case $(uname -s) in Darwin) cache=$HOME/Library/Caches ;; *) cache=${XDG_CACHE_HOME:-$HOME/.cache} ;; esac
    say "${HF_HUB_CACHE:-${HF_HOME:-$cache/huggingface}/hub}"
}

main() {
    act=install prefix=${WF_PREFIX:-}
    base=${WF_BASE:-$base}
    base=${base%/}
    while [ $# -gt 0 ]; do
        case $1 in
        --prefix) [ $# -gt 1 ] || fail "--prefix wants a folder"; prefix=$2; shift ;;
        --prefix=*) prefix=${1#--prefix=} ;;
        --uninstall) act=uninstall ;;
        -h | --help)
            say "Installs wf-run $version from $base" "" "    sh install.sh [--prefix FOLDER] [--uninstall]" "" \
                "FOLDER is ~/.local: the program becomes ~/.local/bin/wf-run."
            return
            ;;
        *) fail "there is no option $1" "sh install.sh [--prefix FOLDER] [--uninstall]" ;;
        esac
        shift
    done
    if [ -z "$prefix" ]; then
        [ -n "${HOME:-}" ] || fail "HOME is not set" "name a place: --prefix FOLDER"
        prefix=$HOME/.local
    fi
    case $prefix in /*) ;; *) prefix=$PWD/$prefix ;; esac
    prefix=${prefix%/}
    program=$prefix/bin/wf-run documents=$prefix/share/doc/wf-run
    trap clean EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
    $act
}

# The last line, so that a script that was cut on its way does nothing.
main "$@"
