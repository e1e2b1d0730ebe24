#!/usr/bin/env bash
# Copyright The moonloop authors
# SPDX-License-Identifier: Apache-2.0
#
# build.sh DIR: builds both images from their Dockerfiles, unchanged, into a store of images in DIR. It needs no daemon and pulls
# nothing (Debian: apt-get install buildah podman runc). What differs from a build elsewhere: golang:1.26, the image of the build
# stage, is this machine's Go and this machine's /usr, and modules come from its caches. Of that stage the final images have two
# things: the binary and the certificates of authorities.
set -euo pipefail

dir=$(mkdir -p "${1:?usage: build.sh DIR}" && cd "$1" && pwd)
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
command -v buildah >/dev/null || { echo 'error: no buildah; on Debian: apt-get install buildah podman runc' >&2; exit 2; }
build() { buildah --root "$dir/store" --runroot "$dir/run" --storage-driver vfs bud --isolation chroot --pull-never "$@"; }

# What a clean checkout would have.
rm -rf "$dir/context" && mkdir "$dir/context"
(cd "$repository" && git ls-files -z --cached --others --exclude-standard | tar --null --ignore-failed-read -T - -cf -) | tar -xf - -C "$dir/context"

mkdir -p "$dir/base/etc/ssl/certs" "$dir/base/toolchain" "$dir/base/usr" "$dir/base/tmp" "$dir/base/cache/modules" "$dir/base/cache/build"
cp -L /etc/ssl/certs/ca-certificates.crt "$dir/base/etc/ssl/certs/"
for link in bin sbin lib lib64; do
	ln -sfn "usr/$link" "$dir/base/$link"
done
cat >"$dir/base.Dockerfile" <<'DOCKERFILE'
FROM scratch
COPY . /
ENV PATH=/toolchain/bin:/usr/bin:/bin HOME=/tmp GOMODCACHE=/cache/modules GOCACHE=/cache/build GOFLAGS=-buildvcs=false GOTOOLCHAIN=local
DOCKERFILE
build --tag docker.io/library/golang:1.26 --file "$dir/base.Dockerfile" "$dir/base"
for command in moonloop otelcol-moonloop; do
	build --tag "localhost/$command:latest" --file "$repository/cmd/$command/Dockerfile" --volume /usr:/usr:ro \
		--volume "$(go env GOROOT):/toolchain:ro" --volume "$(go env GOMODCACHE):/cache/modules" \
		--volume "$(go env GOCACHE):/cache/build" "$dir/context"
done
