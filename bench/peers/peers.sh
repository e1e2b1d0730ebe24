#!/usr/bin/env bash
# Copyright The moonloop authors
# SPDX-License-Identifier: Apache-2.0
#
# Installs the peers of the bench, at fixed versions, into a folder that can be thrown away:
#
#   bench/peers/peers.sh [FOLDER]        (default: build/peers)
#
# An installed peer has a program in FOLDER/bin. A peer that cannot be installed is skipped: FOLDER/NAME.skipped says why, and the
# bench repeats that. A second call does only what is missing. Needs Go, Rust, a C compiler, git, Python 3.12 with venv, and their
# registries; PEERS="vegeta k6" picks some. vLLM takes some 6 GB and is installed only if it is picked; a vLLM that is already in
# the folder VLLM (default: vllm beside FOLDER) takes part.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=${1:-build/peers}
mkdir -p "$folder/bin" && folder=$(cd "$folder" && pwd) || exit 1
python=${PYTHON:-python3}
peers=${PEERS:-vegeta k6 oha wrk2 aiperf guidellm inference-perf vllm}

# skip NAME REASON notes why a peer is not there.
skip() {
	rm -f "$folder/bin/$1"
	echo "$2" >"$folder/$1.skipped"
	echo "peers: $1 is skipped: $2" >&2
}

# want NAME: it was asked for, and is not there yet.
want() { [[ " $peers " == *" $1 "* ]] && [ ! -e "$folder/bin/$1" ] && rm -f "$folder/$1.skipped"; }

# last FILE: the last line of a log, which usually says why.
last() { grep -v '^\s*$' "$1" | tail -n 1 | cut -c1-200; }

# Go programs, in the versions of go.mod beside this script; go.sum pins their content.
go_peer() { # NAME PACKAGE
	want "$1" || return 0
	echo "peers: building $1" >&2
	if ! (cd "$here" && CGO_ENABLED=0 GOWORK=off go build -trimpath -o "$folder/bin/$1" "$2") >"$folder/$1.log" 2>&1; then
		skip "$1" "go build failed: $(last "$folder/$1.log")"
	fi
}

# Python programs, each in an environment of its own, in the versions of its lock file.
environment() { # NAME
	[ -x "$folder/$1/bin/python" ] || "$python" -m venv "$folder/$1" &&
		"$folder/$1/bin/pip" install --quiet --no-deps --requirement "$here/$1.txt"
}

# wrap NAME PROGRAM [VARIABLE=VALUE...] writes FOLDER/bin/NAME.
wrap() {
	local name=$1 program=$2
	shift 2
	{
		echo '#!/bin/sh'
		[ $# -eq 0 ] || printf "export '%s'\n" "$@"
		echo "exec '$program' \"\$@\""
	} >"$folder/bin/$name"
	chmod +x "$folder/bin/$name"
}

# words makes the tokenizer that the Python peers ask for, since the hub may be out of reach.
words() { # PYTHON
	[ -d "$folder/huggingface/hub" ] || "$1" "$here/tokenizer.py" "$here/../../agent/prompt/words512.txt" "$folder/huggingface"
}

# torch_for_guidellm: GuideLLM needs torch for a data loader alone, and the registry's torch brings gigabytes for GPUs. So
# TORCH_INDEX=URL names an index of CPU wheels. Without it, Debian's own package is unpacked, not installed, which works if the
# Python is Debian's version.
torch_for_guidellm() {
	torch_environment=()
	"$folder/guidellm/bin/python" -c 'import torch' 2>/dev/null && return
	if [ -n "${TORCH_INDEX:-}" ]; then
		"$folder/guidellm/bin/pip" install --quiet --index-url "$TORCH_INDEX" torch
		return
	fi
	local root=$folder/torch archives=$folder/torch-packages
	if [ ! -d "$root/usr" ]; then
		command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || { echo 'no torch without GPU libraries: set TORCH_INDEX to an index of CPU wheels'; return 1; }
		mkdir -p "$archives/partial" "$root"
		apt-get install --yes --quiet --no-install-recommends --download-only \
			-o "Dir::Cache::archives=$archives" python3-torch || return 1
		for package in "$archives"/*.deb; do
			dpkg-deb -x "$package" "$root" || return 1
		done
		rm -rf "$archives"
	fi
	mkdir -p "$root/python"
	ln -sfn ../usr/lib/python3/dist-packages/torch "$root/python/torch"
	local lib=$root/usr/lib/x86_64-linux-gnu
	torch_environment=("PYTHONPATH=$root/python" "LD_LIBRARY_PATH=$root/usr/lib:$lib:$lib/blas:$lib/lapack:$root/lib/x86_64-linux-gnu")
	env "${torch_environment[@]}" "$folder/guidellm/bin/python" -c 'from torch.utils.data.dataloader import DataLoader'
}

aiperf() {
	want aiperf || return 0
	echo 'peers: installing aiperf' >&2
	if environment aiperf && words "$folder/aiperf/bin/python" && "$folder/aiperf/bin/aiperf" --version; then
		wrap aiperf "$folder/aiperf/bin/aiperf"
	else
		return 1
	fi >"$folder/aiperf.log" 2>&1
}

guidellm() {
	want guidellm || return 0
	echo 'peers: installing guidellm' >&2
	if environment guidellm && torch_for_guidellm && words "$folder/guidellm/bin/python" &&
		env "${torch_environment[@]}" "$folder/guidellm/bin/guidellm" --version; then
		wrap guidellm "$folder/guidellm/bin/guidellm" "${torch_environment[@]}"
	else
		return 1
	fi >"$folder/guidellm.log" 2>&1
}

inference_perf() {
	want inference-perf || return 0
	echo 'peers: installing inference-perf' >&2
	if environment inference-perf && words "$folder/inference-perf/bin/python" && "$folder/inference-perf/bin/inference-perf" --help; then
		"$folder/inference-perf/bin/pip" show inference-perf | sed -n 's/^Version: //p' >"$folder/inference-perf.version"
		wrap inference-perf "$folder/inference-perf/bin/inference-perf"
	else
		return 1
	fi >"$folder/inference-perf.log" 2>&1
}

# vLLM's bench is part of its whole package. The script of the acceptance tests installs the package without what only a GPU needs.
vllm() {
	want vllm || return 0
	local dir=${VLLM:-$(dirname "$folder")/vllm}
	if [ ! -x "$dir/server/bin/vllm" ] && [[ " ${PEERS:-} " != *" vllm "* ]]; then
		skip vllm "it takes some 6 GB: PEERS=vllm installs it, VLLM=folder names one that is there"
		return 0
	fi
	echo 'peers: installing vllm' >&2
	if "$here/../../test/acceptance/vllm/install.sh" "$dir" && dir=$(cd "$dir" && pwd) && words "$dir/server/bin/python"; then
		wrap vllm "$dir/server/bin/vllm"
	else
		return 1
	fi >"$folder/vllm.log" 2>&1
}

oha() {
	want oha || return 0
	echo 'peers: building oha' >&2
	if cargo install --quiet --locked --root "$folder/cargo" oha@1.16.0; then
		ln -sf ../cargo/bin/oha "$folder/bin/oha"
	else
		return 1
	fi >"$folder/oha.log" 2>&1
}

# wrk2 is in no registry. WRK2_GIT=URL names another copy of the repository.
wrk2() {
	want wrk2 || return 0
	echo 'peers: building wrk2' >&2
	local commit=44a94c17d8e6a0bac8559b53da76848e430cb7a7
	if { [ -d "$folder/wrk2" ] || GIT_TERMINAL_PROMPT=0 git clone --quiet "${WRK2_GIT:-https://github.com/giltene/wrk2}" "$folder/wrk2"; } &&
		git -C "$folder/wrk2" checkout --quiet "$commit" && make -C "$folder/wrk2"; then
		cp "$folder/wrk2/wrk" "$folder/bin/wrk2"
		echo "${commit:0:7}" >"$folder/wrk2.version"
	else
		return 1
	fi >"$folder/wrk2.log" 2>&1
}

go_peer vegeta github.com/tsenart/vegeta/v12
go_peer k6 go.k6.io/k6/v2
oha || skip oha "$(last "$folder/oha.log")"
wrk2 || skip wrk2 "$(last "$folder/wrk2.log")"
aiperf || skip aiperf "$(last "$folder/aiperf.log")"
guidellm || skip guidellm "$(last "$folder/guidellm.log")"
inference_perf || skip inference-perf "$(last "$folder/inference-perf.log")"
vllm || skip vllm "$(last "$folder/vllm.log")"
ls "$folder/bin"
