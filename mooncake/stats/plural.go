// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package stats

import "strconv"

// plural returns "1 row", "2 rows".
func plural(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.FormatInt(n, 10) + " " + noun + "s"
}
