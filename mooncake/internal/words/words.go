// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package words formats numbers in sentences for package mooncake and its sub-packages.
package words

import (
	"strconv"

	"github.com/dustin/go-humanize/english"
)

// Plural returns "1 row", "2 rows", "2 replies".
func Plural(n int64, noun string) string {
	return strconv.FormatInt(n, 10) + " " + english.PluralWord(int(n), noun, "")
}
