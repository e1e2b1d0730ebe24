#!/usr/bin/env bash
# Copyright The moonloop authors
# SPDX-License-Identifier: Apache-2.0
#
# install.sh DIR: builds a Kubernetes control plane into DIR: kube-apiserver, kube-controller-manager and kubectl (one binary under
# three names, which links once), helm, and the definitions of two operators' resources. etcd comes from the system (Debian:
# etcd-server). A first build takes some fifteen minutes. Kubernetes is a Go module that replaces its own parts with folders, which
# "go install" refuses: here a module of our own replaces them with the modules in which Kubernetes publishes them.
set -euo pipefail

dir=${1:?usage: install.sh DIR}
version=v1.36.3
staging=v0.36.3 # of the same release
helm=helm.sh/helm/v3/cmd/helm@v3.22.0

command -v etcd >/dev/null || { echo 'error: no etcd; on Debian: apt-get install etcd-server' >&2; exit 2; }
mkdir -p "$dir/module"
dir=$(cd "$dir" && pwd)
export GOWORK=off CGO_ENABLED=0 GOFLAGS='-mod=mod -trimpath'
[ -x "$dir/helm" ] || GOBIN=$dir go install "$helm"

# definition MODULE FILE: copies a file out of a module.
definition() {
	local source
	source=$(cd "$dir" && go mod download -json "$1" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
	install -D -m 0644 "$source/$2" "$dir/definitions/${2##*_}"
}
definition github.com/prometheus-operator/prometheus-operator@v0.85.0 \
	example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml
definition github.com/open-telemetry/opentelemetry-operator@v0.140.0 config/crd/bases/opentelemetry.io_opentelemetrycollectors.yaml
for part in kube-apiserver kube-controller-manager kubectl; do
	ln -sfn kube "$dir/$part"
done
[ -x "$dir/kube" ] && exit 0

cd "$dir/module"
cat >main.go <<'GO'
// Several parts of Kubernetes in one binary: it runs the part under whose name it is called.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	manager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

func main() {
	switch name := filepath.Base(os.Args[0]); name {
	case "kube-apiserver":
		os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
	case "kube-controller-manager":
		os.Exit(cli.Run(manager.NewControllerManagerCommand()))
	case "kubectl":
		os.Exit(cli.Run(kubectl.NewDefaultKubectlCommand()))
	default:
		fmt.Fprintln(os.Stderr, "error: not a part of Kubernetes:", name)
		os.Exit(2)
	}
}
GO
source=$(go mod download -json "k8s.io/kubernetes@$version" | sed -n 's/.*"GoMod": "\(.*\)".*/\1/p')
sed -e 's#^module .*#module kubernetes-for-tests#' -e "s#=> ./staging/src/\(.*\)#=> \1 $staging#" "$source" >go.mod
go mod edit -require "k8s.io/kubernetes@$version"
go build -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$version -X k8s.io/component-base/version.gitMajor=1 \
-X k8s.io/component-base/version.gitMinor=36" -o ../kube .
