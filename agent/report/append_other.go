// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package report

import "os"

// appendNow appends to a file.
func appendNow(f *os.File, p []byte) error {
	_, err := f.Write(p)
	return err
}
