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

// tokens reads a number of tokens. 512.0 is one: writers of data frames turn columns with a gap into floats. How large it may be
// is for the row to say.
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

// shown is a value as messages repeat it: numbers and times only, because what stands where a number should be may be text of a
// prompt.
func shown(s string) string {
	const limit = 40
	if len(s) <= limit && strings.Trim(s, "0123456789+-.:eETZ ") == "" {
		return s
	}
	return fmt.Sprintf("a text of %d bytes", len(s))
}

// clip bounds a name that comes from a file.
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
