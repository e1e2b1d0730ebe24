#!/usr/bin/env bash
# Copyright The moonloop authors
# SPDX-License-Identifier: Apache-2.0
#
# install.sh DIR [s3]: installs the published jars of a Kafka broker in DIR/kafka, and an S3 server that keeps objects in files, as
# DIR/versitygw; with s3, the S3 server alone. Kafka needs Java 17 or later, and Maven.
set -euo pipefail

dir=${1:?usage: install.sh DIR [s3]}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)

if [ "${2-}" != s3 ] && ! [ -e "$dir/kafka/done" ]; then
	mvn -q -B -f "$here/pom.xml" org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies -DoutputDirectory="$dir/kafka"
	touch "$dir/kafka/done"
fi
[ -x "$dir/versitygw" ] || GOWORK=off GOBIN="$dir" CGO_ENABLED=0 go install -trimpath github.com/versity/versitygw/cmd/versitygw@v1.8.0
