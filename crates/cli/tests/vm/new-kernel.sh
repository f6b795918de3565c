#!/bin/sh
# Fetches a kernel newer than this Debian's, from the backports to the release after it: new-kernel.sh DIRECTORY. Only unpacked, not installed.
set -eu
mkdir -p "$1"
cd "$1"
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep '/debian/*$' | head -n 1)
[ -n "$mirror" ] || { echo "no Debian mirror in apt's sources" >&2; exit 1; }
lists=$(mktemp -d)
trap 'rm -rf "$lists"' EXIT
fetch() { /usr/lib/apt/apt-helper -qq -o APT::Sandbox::User=root download-file "$1" "$2" > /dev/null; }
fetch "${mirror%/}/dists/${SUITE:-trixie-backports}/main/binary-amd64/Packages.xz" "$lists/packages.xz"
xz -d "$lists/packages.xz"
newest=$(sed -n 's/^Package: linux-binary-\([0-9].*-cloud-amd64\)$/\1/p' "$lists/packages" | sort -V | tail -n 1)
[ -n "$newest" ] || { echo "no kernel in that suite" >&2; exit 1; }
for part in binary modules; do
    file=$(awk -v name="linux-$part-$newest" '$1 == "Package:" { found = $2 == name } $1 == "Filename:" && found { print $2 }' "$lists/packages")
    fetch "${mirror%/}/$file" "$lists/$part.deb"
    dpkg -x "$lists/$part.deb" .
done
mkdir -p boot lib
mv usr/lib/modules lib/
mv "lib/modules/$newest/vmlinuz" "boot/vmlinuz-$newest"
rm -r usr
