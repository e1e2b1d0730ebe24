#!/usr/bin/env bash
# Copyright The moonloop authors
# SPDX-License-Identifier: Apache-2.0
#
# install.sh DIR: builds Prometheus, without its web interface, as DIR/prometheus. It is a Go module like any other, but its go.mod
# replaces dependencies, which "go install" refuses: the same requirements, with their checksums, go into a module of their own.
set -euo pipefail

dir=${1:?usage: install.sh DIR}
module=github.com/prometheus/prometheus
version=v0.305.2 # which is Prometheus 3.5.2, as in examples/compose
[ -x "$dir/prometheus" ] && exit 0

mkdir -p "$dir/module"
cd "$dir/module"
export GOWORK=off # a module of its own
source=$(go mod download -json "$module@$version" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
sed "s#^module .*#module prometheus-for-tests#" "$source/go.mod" >go.mod
cat "$source/go.sum" >go.sum
go mod edit -require "$module@$version"
CGO_ENABLED=0 GOFLAGS=-mod=mod go build -trimpath -tags netgo -o ../prometheus "$module/cmd/prometheus"
