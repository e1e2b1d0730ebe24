// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import "os"

// Lock takes the exclusive lock that a [Writer] holds on its journal on another file, without waiting: for those who keep
// several journals. It ends with the file's close, or with the process.
func Lock(f *os.File) error { return lock(f) }
