# shellcheck shell=bash
# Sourced by tools/quickstart and tools/check: what the build needs, whether it is there, and how to get it on Debian.

# The libraries that meson.build files ask pkg-config for, and the Debian package of each (tools/tidy.py compares).
declare -A package_of=(
    [libsodium]=libsodium-dev
    [hwloc]=libhwloc-dev
    [libibverbs]=libibverbs-dev
    [pmix]=libpmix-dev
    [CLI11]=libcli11-dev
    [nlohmann_json]=nlohmann-json3-dev
    [fmt]=libfmt-dev
    [libzstd]=libzstd-dev
    [catch2]=catch2
)

say() { printf '%s\n' "$@"; }

# Ends the script: what is wrong, then what to do about it.
die() {
    printf '\n%s can not go on: %s\n' "tools/${0##*/}" "$1" >&2
    shift
    (($# == 0)) || printf '  %s\n' "$@" >&2
    exit 1
}

# The compiler that Meson will take.
compiler() {
    local name
    for name in ${CXX:-c++ g++ clang++}; do
        if command -v "$name" >/dev/null; then
            printf '%s\n' "$name"
            return
        fi
    done
    return 1
}

# builds_cxx20 FLAGS... < PROGRAM: whether the compiler makes a program of it.
builds_cxx20() {
    local cxx
    cxx=$(compiler) && "$cxx" -std=c++20 -x c++ - -o /dev/null "$@" 2>/dev/null
}

at_least() { printf '%s\n%s\n' "$1" "$2" | sort -V -C; }

# there PROGRAMS...: whether they are, also those that only root has on the path.
there() {
    local name
    for name; do PATH=$PATH:/usr/sbin:/sbin command -v "$name" >/dev/null || return 1; done
}

# Whether what a package gives is there, from wherever it came.
have() {
    case $1 in
    g++) command -v cc >/dev/null && builds_cxx20 -pthread <<<'#include <span>
int main() { return static_cast<int>(std::span<int>().size()); }' ;;
    meson) command -v meson >/dev/null && at_least 1.0 "$(meson --version)" ;;
    ninja-build) there ninja ;;
    pkg-config | python3 | cmake | shellcheck | spin | valgrind) there "$1" ;;
    # Meson asks it where Debian has libraries; else they are installed where CMake and ld.so do not look.
    dpkg-dev) [[ ! -e /etc/debian_version ]] || there dpkg-architecture ;;
    iproute2) there ip tc rdma ;;
    nftables) there nft ;;
    openmpi-bin) there mpirun.openmpi ;;
    mpich) there mpirun.mpich || there mpiexec.hydra ;;
    python3-yaml) /usr/bin/python3 -c 'import yaml' ;;
    python3-torch) /usr/bin/python3 -c 'import torch' ;;
    libtorch-dev) [[ -e /usr/include/torch/csrc ]] ;;
    python3-dev) compgen -G '/usr/include/python3.*/Python.h' >/dev/null ;;
    python3-venv) /usr/bin/python3 -c 'import ensurepip, venv' ;;
    python3-setuptools) /usr/bin/python3 -c 'import setuptools' ;;
    pybind11-dev) [[ -e /usr/include/pybind11 ]] ;;
    abigail-tools) there abidw abidiff ;;
    clang) there clang clang++ ;;
    g++-aarch64-linux-gnu) there aarch64-linux-gnu-g++ ;;
    qemu-user) there qemu-aarch64 ;;
    libclang-rt-14-dev) compgen -G '/usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.fuzzer-*.a' >/dev/null ;;
    qemu-system-x86) there qemu-system-x86_64 ;;
    ibverbs-providers) compgen -G '/usr/lib*/*/libibverbs/librxe*.so' >/dev/null ||
        compgen -G '/usr/lib*/libibverbs/librxe*.so' >/dev/null ;;
    catch2) pkg-config --exists catch2 || pkg-config --exists catch2-with-main ;;
    *)
        local library
        for library in "${!package_of[@]}"; do
            if [[ ${package_of[$library]} == "$1" ]]; then
                pkg-config --exists "$library"
                return
            fi
        done
        return 1
        ;;
    esac
} 2>/dev/null

# need_space DIRECTORY MEGABYTES WHAT_FOR
need_space() {
    local free
    free=$(df -Pm "$1" | awk 'NR == 2 { print $4 }')
    ((free >= $2)) || die "$(realpath "$1") has $free MB left, and $3 takes about $2 MB." \
        "Free some space and run it again."
}

# writable DIRECTORY: it is, or it does not exist, or the script ends.
writable() {
    [[ ! -e $1 || -w $1 ]] || die "$(realpath "$1") is not writable for $(id -un)." \
        "If an earlier run as root made it: sudo chown -R $(id -un) $1"
}

# Sets root to the words that make a command run as root.
become_root() {
    root=()
    if (($(id -u) == 0)); then
        return
    elif ! command -v sudo >/dev/null; then
        die "packages are missing, you are not root, and there is no sudo." "As root: apt-get install $*"
    elif sudo -n true 2>/dev/null; then
        root=(sudo -n)
    elif [[ -t 0 ]]; then
        root=(sudo) # asks for the password
    else
        die "packages are missing, and sudo wants a password but there is no terminal to ask on." \
            "As root: apt-get install $*"
    fi
}

# why_apt_failed OUTPUT PACKAGES...: ends the script with the reason that apt-get's output shows.
why_apt_failed() {
    local output=$1 again
    shift
    again="Then run it again, or install by hand: apt-get install $*"
    tail -n 5 <<<"$output" >&2
    shows() { grep -qiE "$1" <<<"$output"; }
    if shows 'no space left|enough free space'; then
        die "the disk is full; the packages do not fit." "$again"
    elif shows 'could not (resolve|connect)|temporary failure|connection (failed|refused|timed out)|unreachable'; then
        die "the network, or the package server, can not be reached." \
            "Check the connection and /etc/apt/sources.list*." "$again"
    elif shows 'could not get lock'; then
        die "another package manager is at work." "Wait until it has finished. $again"
    elif shows 'unable to locate package'; then
        die "this distribution does not have all of the packages." "Needed, as Debian 12 calls them: $*"
    fi
    die "apt-get failed; its last lines are above." "$again"
}

# need PACKAGES...: returns with all of them there, or ends the script.
need() {
    local package missing=()
    for package in "$@"; do have "$package" || missing+=("$package"); done
    ((${#missing[@]} > 0)) || return 0

    if [[ -n ${CXX:-} && " ${missing[*]} " == *" g++ "* ]]; then
        die "CXX=$CXX can not compile C++20, or there is no cc." "Unset CXX to use the system's compiler."
    fi
    if ! command -v apt-get >/dev/null; then
        die "this is not Debian or a relative of it (no apt-get), and something is missing." \
            "Install what your distribution calls these Debian packages: ${missing[*]}" \
            "(a C++20 compiler, Meson 1.0 or later). Then run it again: nothing is installed when all is there."
    fi
    become_root "${missing[@]}"
    need_space /usr 600 "installing packages"
    say "Installing ${missing[*]} ..."
    local output apt=("${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=60)
    # A stale list may do where the update fails; where it does not, the output of both says why.
    output=$("${apt[@]}" update 2>&1 </dev/null) || true
    output+=$'\n'$("${apt[@]}" install -y --no-install-recommends "${missing[@]}" 2>&1 </dev/null) ||
        why_apt_failed "$output" "${missing[@]}"

    for package in "${missing[@]}"; do
        have "$package" && continue
        [[ $package == meson ]] && command -v meson >/dev/null &&
            die "Meson $(meson --version) is too old: 1.0 or later is needed." "For example: pipx install meson"
        [[ $package == g++ ]] && die "the compiler that this distribution has can not compile C++20." \
            "g++ 11 or clang 14, or later, is needed; set CXX and CC to one."
        die "$package was installed, but what it should give is not found."
    done
}

# configure DIRECTORY MESON_ARGUMENTS...: once; Ninja reconfigures by itself later. False, with the log's end, if it
# fails.
configure() {
    local directory=$1
    shift
    [[ -f $directory/build.ninja ]] && return
    mkdir -p "$directory"
    if ! meson setup "$directory" "$@" >"$directory/setup.log" 2>&1 </dev/null; then
        tail -n 15 "$directory/setup.log" >&2
        return 1
    fi
}

# progress LOG < NINJA'S OUTPUT: keeps it in LOG, and says how far Ninja is: on a terminal in one line that changes,
# else every 20 seconds.
progress() {
    local line said='' next=20 began=$SECONDS passed live=''
    [[ ! -t 1 ]] || live=yes
    while IFS= read -r line; do
        printf '%s\n' "$line" >&3
        [[ $line =~ ^\[([0-9]+)/([0-9]+)\] ]] || continue
        passed=$((SECONDS - began))
        said="  ${BASH_REMATCH[1]} of ${BASH_REMATCH[2]} steps in $passed s"
        ((BASH_REMATCH[1] * 8 < BASH_REMATCH[2])) || # before, it would be a guess
            said+=", about $((passed * (BASH_REMATCH[2] - BASH_REMATCH[1]) / BASH_REMATCH[1])) s left"
        if [[ -n $live ]]; then
            printf '\r%s\e[K' "$said"
        elif ((passed >= next)); then
            say "$said"
            next=$((passed + 20))
        fi
    done 3>"$1"
    [[ -z $live || -z $said ]] || printf '\r\e[K'
}

# compile DIRECTORY TARGETS...: false, with the first errors, if it fails.
compile() {
    local directory=$1
    shift
    ninja -C "$directory" -j "$(nproc)" "$@" 2>&1 </dev/null | progress "$directory/compile.log" && return
    # The first broken command with what it printed; the rest repeats it. Meson prints before Ninja says "FAILED".
    grep ': ERROR: ' "$directory/compile.log" >&2 && return 1
    awk '/^FAILED:/ { found = 1 } found && n++ < 60' "$directory/compile.log" >&2
    grep -q '^FAILED:' "$directory/compile.log" || tail -n 20 "$directory/compile.log" >&2
    return 1
}
