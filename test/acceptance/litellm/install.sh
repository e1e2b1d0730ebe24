#!/usr/bin/env bash
# Copyright The moonloop authors
# SPDX-License-Identifier: Apache-2.0
#
# install.sh DIR: installs a LiteLLM proxy with its callback for OpenTelemetry in DIR: 0.5 GB, a minute. Needs Python 3.12 ($PYTHON, else
# python3.12). Done once; a second call does nothing.
set -euo pipefail

dir=${1:?usage: install.sh DIR}
python=${PYTHON:-python3.12}
done="$dir/installed-1"
[ -e "$done" ] && exit 0

command -v "$python" >/dev/null || {
	echo "error: no $python: install it, or name it: PYTHON=/path/to/python3.12" >&2
	exit 2
}
"$python" -m venv --clear "$dir"
"$dir/bin/pip" install --quiet 'litellm[proxy]==1.106.2' opentelemetry-sdk==1.45.2 opentelemetry-exporter-otlp==1.45.2
touch "$done"
