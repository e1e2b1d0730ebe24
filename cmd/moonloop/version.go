// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"runtime"
	"runtime/debug"
	"strings"
)

// version describes the build by what the toolchain recorded in it: the version that the module was installed as, else the
// commit.
func version() string {
	v := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		v = cmp.Or(strings.Trim(info.Main.Version, "()"), "devel")
	}
	return v + ", " + runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH
}
