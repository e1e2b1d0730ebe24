// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package report

import "os"

// appendNow appends to a file, and returns the number of bytes that were written.
func appendNow(f *os.File, p []byte) (int, error) { return f.Write(p) }
