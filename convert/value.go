// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

var errNoInteger = errors.New("is not an integer")

// tokens reads a number of tokens. 512.0 is valid, because writers of data frames convert columns with gaps to floats. The maximum is
// checked with the row.
func tokens(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		f, ferr := strconv.ParseFloat(s, 64)
		if ferr != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
			return 0, errNoInteger
		}
		n = int64(f)
	}
	if n < 0 {
		return 0, errBefore
	}
	return n, nil
}

// shown returns a value for messages: only numbers and times, because a wrong value in place of a number may be text of a prompt.
func shown(s string) string {
	const limit = 40
	if len(s) <= limit && strings.Trim(s, "0123456789+-.:eETZ ") == "" {
		return s
	}
	return fmt.Sprintf("a text of %d bytes", len(s))
}

// clip shortens a name from a file.
func clip(s string) string {
	const limit = 64
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "") + "..."
	}
	if strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}
