// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build !windows && (!unix || solaris || aix)

package atomicfile

import (
	"errors"
	"os"
)

var errHeld = errors.ErrUnsupported // never returned: this platform has no lock that ends with the process

func lock(*os.File) error { return nil }

// removeStale does nothing, because without locks it is unknown whether the file is still being written.
func removeStale(string) {}
