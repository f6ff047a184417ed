#!/usr/bin/env bash
# Builds the image, and writes it to a directory in the OCI layout.
#   scripts/packaging/oci/build.sh DIRECTORY [BINARY]
# Without BINARY, builds the program with the profile dist. Needs buildah, and neither root nor a registry.
set -euo pipefail
directory=$(realpath -m "$1")
built=$(realpath "${2:-/}")
cd "$(dirname "$0")/../../.."
if [ -z "${2:-}" ]; then
  cargo build --locked --profile dist
  built=${CARGO_TARGET_DIR:-target}/dist/lockkeeper
fi
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
cp scripts/packaging/oci/Containerfile "$stage"
mkdir -p "$stage/data" "$stage/root/usr/bin" "$stage/root/etc/lockkeeper"
chmod -R u=rwX,go=rX "$stage/root"
chmod 700 "$stage/data"
strip -o "$stage/root/usr/bin/lockkeeper" "$built"
# The libraries keep their paths, which the loader and the program know.
ldd "$built" | grep -o '/[^ ]*' | while read -r library; do
  install -D -m 755 "$(realpath "$library")" "$stage/root$library"
done
echo 'hosts: files dns' > "$stage/root/etc/nsswitch.conf"
version=$("$built" --version | cut -d' ' -f2)
buildah build --isolation chroot --timestamp 0 --tag "lockkeeper:$version" "$stage"
mkdir -p "$(dirname "$directory")"
buildah push "lockkeeper:$version" "oci:$directory:$version"
echo "$directory: lockkeeper:$version"
