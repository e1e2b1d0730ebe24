// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/moonloop/moonloop/internal/term"
)

// rule is a requirement for the value of a flag, in addition to its type. Rules are checked before anything is read, written or sent.
type rule struct {
	want string // completes "want ..."
	// ok checks a value. Only an [advice] error is shown; otherwise the rule shows want.
	ok func(value string) error
	// words are all possible values, for completion; nil if they cannot be listed.
	words []string
	// emptyMeans is true if "" is a valid value.
	emptyMeans bool
	// secret values are never repeated.
	secret bool
	// long is true if values of up to 64 KiB are accepted; else the limit is 4 KiB, the longest path of most systems.
	long  bool
	flags bool // its values are flags of another verb
}

// advice is an error that says more than what is wanted.
type advice string

func (a advice) Error() string { return string(a) }

// advised makes an error advice.
func advised(err error) error {
	if err == nil {
		return nil
	}
	return advice(err.Error())
}

// errWrong is the error of a value that needs no explanation.
var errWrong = errors.New("not what is wanted")

// wrongUnless returns an error unless a value is good.
func wrongUnless(good bool) error {
	if good {
		return nil
	}
	return errWrong
}

// Longest values, in bytes.
const (
	maxText     = 4 << 10
	maxLongText = 64 << 10
)

const century = 100 * 365 * 24 * time.Hour

// between returns a rule that accepts values in the range [least, most], which a function parses.
func between[T cmp.Ordered](want string, read func(string) (T, error), least, most T) rule {
	return rule{want: want, ok: func(value string) error {
		v, err := read(value)
		return errors.Join(err, wrongUnless(v >= least && v <= most)) // NaN, too, is wrong
	}}
}

// whole returns a rule that accepts whole numbers in the range [least, most].
func whole(least, most int64) rule {
	return between(fmt.Sprintf("a whole number from %s to %s", term.Comma(least), term.Comma(most)),
		func(value string) (int64, error) { return strconv.ParseInt(value, 10, 64) }, least, most)
}

// number returns a rule that accepts numbers in the range [least, most].
func number(least, most float64) rule {
	return between("a number from "+plainNumber(least)+" to "+plainNumber(most), parseFloat, least, most)
}

// plainNumber prints a number without an exponent.
func plainNumber(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// share accepts a part of a whole.
var share = between("a share from 0 to 1", parseFloat, 0, 1)

func parseFloat(value string) (float64, error) { return strconv.ParseFloat(value, 64) }

// bytesFrom returns a rule that accepts numbers of bytes that are not below least; words describe this limit.
func bytesFrom(least uint64, words string) rule {
	return between("a number of bytes "+words+", such as 256MiB", humanize.ParseBytes, least, 1<<50)
}

// lasting returns a rule that accepts durations in the range [least, most]; words describe the limits.
func lasting(least, most time.Duration, words string) rule {
	return between("a duration "+words+" with its unit, such as 500ms, 90s or 5m", time.ParseDuration, least, most)
}

// manyWords is the maximum number of words that a message lists.
const manyWords = 12

// oneOf returns a rule that accepts a few words.
func oneOf[T ~string](values ...T) rule {
	words := make([]string, len(values))
	for i, v := range values {
		words[i] = string(v)
	}
	last := len(words) - 1
	want := strings.Join(words[:last], ", ") + " or " + words[last]
	if len(words) > manyWords {
		want = "one of those that --help lists"
	}
	return rule{words: words, want: want, ok: func(value string) error { return wrongUnless(slices.Contains(words, value)) }}
}

// anyText returns a rule that accepts any text on one line.
func anyText(want string) rule { return that(want, func(string) error { return nil }) }

// that returns a rule with its own check.
func that(want string, ok func(value string) error) rule { return rule{want: want, ok: ok} }

// reads returns a rule that accepts what a function can parse.
func reads[T any](want string, read func(value string) (T, error)) rule {
	return that(want, func(value string) error { _, err := read(value); return err })
}

// explains returns a rule like that of reads. A value that cannot be parsed is answered with the function's error, which says more.
func explains[T any](want string, read func(value string) (T, error)) rule {
	return that(want, func(value string) error { _, err := read(value); return advised(err) })
}

// The rules of flags without their own.
var (
	anyBool     = reads("true or false", strconv.ParseBool)
	anyNumber   = number(0, math.MaxFloat64)
	anyDuration = lasting(0, century, "from 0 to 100 years")
	manyOrNone  = whole(0, 1_000_000_000)
	any64Bits   = reads("a whole number from 0 to 2^64-1", func(value string) (uint64, error) { return strconv.ParseUint(value, 0, 64) })
)
