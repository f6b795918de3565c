#!/bin/sh
# Builds a small kernel with the idle-page bitmap, which Debian's own has not, from Debian's source: idle-kernel.sh DIRECTORY.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
to=$(cd "$1" && pwd)
source=$(ls /usr/src/linux-source-*.tar.xz 2> /dev/null | sort -V | tail -n 1)
[ -n "$source" ] || { echo "no kernel source below /usr/src: apt-get install linux-source-6.12 bc flex bison libelf-dev" >&2; exit 1; }
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
tar -C "$tree" -xf "$source" --strip-components=1
cd "$tree"
make -s tinyconfig
./scripts/kconfig/merge_config.sh -m .config "$here/idle-kernel.config" > /dev/null
make -s olddefconfig
grep -q '^CONFIG_IDLE_PAGE_TRACKING=y' .config
make -s -j"$(nproc)" bzImage modules
make -s INSTALL_MOD_PATH="$to" modules_install
mkdir -p "$to/boot"
cp arch/x86/boot/bzImage "$to/boot/vmlinuz-$(make -s kernelrelease)"
