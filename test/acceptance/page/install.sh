#!/usr/bin/env bash
# Copyright The moonloop authors
# SPDX-License-Identifier: Apache-2.0
#
# install.sh DIR: installs puppeteer-core and axe-core, which open and check a report page in a browser, in DIR: 30 MB, seconds. Needs
# Node.js with npm, and Chromium ($CHROMIUM, else chromium on the path; Debian's package is chromium). A second call only copies look.mjs.
set -euo pipefail

dir=${1:?usage: install.sh DIR}
mkdir -p "$dir"
cp "$(dirname "${BASH_SOURCE[0]}")/look.mjs" "$dir/look.mjs"
done="$dir/installed-1"
[ -e "$done" ] && exit 0

for tool in node npm "${CHROMIUM:-chromium}"; do
	command -v "$tool" >/dev/null || {
		echo "error: no $tool: install it (Debian: apt-get install nodejs npm chromium), or name the browser: CHROMIUM=/path/to/chromium" >&2
		exit 2
	}
done
cd "$dir"
npm init --yes >/dev/null
npm install --silent --no-fund --no-audit --ignore-scripts puppeteer-core@24.43.1 axe-core@4.14.1
touch "$(basename "$done")"
