#!/usr/bin/env bash
# Installs what building and testing need and this machine lacks, as Debian or Ubuntu packages, and says so. Further
# packages may be named as arguments. Does nothing, quickly, when all is there.
set -euo pipefail

packages=(build-essential cmake pkg-config openmpi-bin libopenmpi-dev libdnnl-dev libjansson-dev
    libxxhash-dev libhwloc-dev libexpat1-dev libcmocka-dev "$@")

if ! command -v apt-get > /dev/null; then
    echo "No apt-get here, so nothing is installed. Debian's names of what is needed: ${packages[*]}" >&2
    exit 0
fi

missing=()
for package in "${packages[@]}"; do
    status=$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2> /dev/null || true)
    [[ $status == installed ]] || missing+=("$package")
done
[[ ${#missing[@]} -gt 0 ]] || exit 0

as_root=()
if [[ $EUID -ne 0 ]]; then
    if ! command -v sudo > /dev/null; then
        echo "Packages are missing, and neither root nor sudo is at hand to install them. As root:" >&2
        echo "    apt-get install ${missing[*]}" >&2
        exit 1
    fi
    as_root=(sudo)
fi

apt() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get --quiet --yes -o DPkg::Lock::Timeout=300 "$@"
}

echo "==> Installing ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
install_missing() {
    apt install --no-install-recommends "${missing[@]}" > "$log" 2>&1
}
# The lists of packages are fetched only if they are absent or too old to install from.
if ! install_missing && ! { apt update > "$log" 2>&1 && install_missing; }; then
    cat "$log" >&2
    echo "Could not install ${missing[*]}; the lines above say why." >&2
    exit 1
fi
