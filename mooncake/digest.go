// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"math"
	"strconv"
)

// Undefined is the value of a digest that the trace does not have.
const Undefined = "undefined"

// Digests identify a workload: two traces are the same workload exactly if all digests are defined and equal. Each digest is 64 hexadecimal
// digits of a SHA-256, or [Undefined].
type Digests struct {
	// Seq covers the order of the rows, their lengths and the blocks that they share. It does not depend on the values of ids.
	Seq string `json:"seq_digest"`
	// Tree covers the same without the order of the rows.
	Tree string `json:"tree_digest"`
	// Arrival covers the timestamps, relative to the first row's, with a resolution of 1 ns.
	Arrival string `json:"arrival_digest"`
	// Ranges covers what rows share in the finer blocks of hash_ranges, and which tokens are replies. It does not depend on the values of
	// ids. It is empty if no row has ranges or replies.
	Ranges string `json:"range_digest,omitempty"`
	// Reason says why a digest is undefined; empty if all are defined.
	Reason string `json:"undefined_because,omitempty"`
}

// Defined reports whether all digests are defined.
func (d Digests) Defined() bool {
	return d != Digests{} && d.Seq != Undefined && d.Tree != Undefined && d.Arrival != Undefined && d.Ranges != Undefined
}

// Same reports whether two traces are the same workload.
func (d Digests) Same(o Digests) bool {
	return d.Defined() && d.Seq == o.Seq && d.Tree == o.Tree && d.Arrival == o.Arrival && d.Ranges == o.Ranges
}

// Digester computes the digests of a trace, row by row. It ignores ids beyond those that the input length has room for ([Row.Blocks]).
//
// The sequence and tree digests need both lengths and hash ids on every row. Each id must have one parent, one fill, and occur once in a
// row (rules V4, V5, V6). The arrival digest needs timestamps on every row, none before the first. The digest of ranges needs the size of
// their blocks, and ranges that agree with the hash ids (V9).
type Digester struct {
	checker *Checker
	seq     sum
	arrival sum
	ranges  sum // has no hash until a row has ranges or replies
	buf     []byte
	first   float64
	ends    ends
	noTree  string // why there is no tree digest, although there is a sequence digest
	opt     CheckOptions
	err     error // of the tree digest
}

// sum is a digest that is being computed, or the reason why there is none.
type sum struct {
	hash.Hash
	lost string
}

func (s *sum) String() string {
	switch {
	case s.lost != "":
		return Undefined
	case s.Hash == nil:
		return ""
	}
	return hex.EncodeToString(s.Sum(nil))
}

// NewDigester returns a digester.
func NewDigester(opt CheckOptions) *Digester {
	return &Digester{
		checker: NewChecker(opt), seq: sum{Hash: sha256.New()}, arrival: sum{Hash: sha256.New()}, ends: newEnds(&opt), opt: opt,
	}
}

// Err returns why digests and trunk must not be used: temporary files ([CheckOptions].Memory) could not be written or read. Call it after
// Digests and Trunk.
func (d *Digester) Err() error { return cmp.Or(d.checker.err(), d.ends.err(), d.err) }

// Close frees memory and temporary files. The digester cannot be used after it.
func (d *Digester) Close() {
	d.checker.close()
	d.ends.close()
}

// Checker returns the checker that has seen the same rows. Callers may query it, but must not add rows to it.
func (d *Digester) Checker() *Checker { return d.checker }

// Add digests the next row of the file, which is on the given line.
func (d *Digester) Add(row *Row, line int64) {
	bad := d.checker.add(row, line)
	d.time(row, line)
	d.share(row, line, bad)
	switch {
	case d.seq.lost != "":
	case !row.InputLength.Set || !row.OutputLength.Set || row.HashIDs == nil:
		d.seq.lost = fmt.Sprintf("line %d lacks input_length, output_length or hash_ids", line)
	case bad&repeated != 0:
		d.seq.lost = fmt.Sprintf("an id occurs twice in one row (line %d)", line)
	case bad&parents != 0:
		d.seq.lost = fmt.Sprintf("an id has two parents (line %d)", line)
	case bad&fills != 0:
		d.seq.lost = fmt.Sprintf("an id has two fills (line %d)", line)
	case d.checker.forest.full:
		d.seq.lost = d.checker.Unchecked()
	default:
		d.sequence(row)
		d.end(row, line)
		return
	}
	d.ends.close()
}

func (d *Digester) sequence(row *Row) {
	b := strconv.AppendInt(d.buf[:0], row.InputLength.V, 10)
	b = append(b, ',')
	b = strconv.AppendInt(b, row.OutputLength.V, 10)
	b = append(b, ',')
	for i, n := range d.checker.forest.row {
		if i > 0 {
			b = append(b, ' ')
		}
		b = strconv.AppendUint(b, uint64(n), 10)
	}
	d.buf = append(b, '\n')
	d.seq.Hash.Write(d.buf)
}

// share adds a row's ranges and replies to the digest of ranges.
func (d *Digester) share(row *Row, line int64, bad faults) {
	if d.ranges.lost != "" || row.HashRanges == nil && len(row.Replies) == 0 {
		return
	}
	a := d.checker.ranges
	switch {
	case row.HashRanges == nil:
	case a == nil:
		d.ranges.lost = fmt.Sprintf("nothing says how many tokens an id of hash_ranges stands for (line %d)", line)
	case bad&disagreeing != 0:
		d.ranges.lost = fmt.Sprintf("hash_ranges and hash_ids disagree (line %d)", line)
	default:
		d.ranges.lost = a.full
	}
	if d.ranges.lost != "" {
		return
	}
	if d.ranges.Hash == nil {
		d.ranges.Hash = sha256.New()
	}
	b := strconv.AppendInt(d.buf[:0], d.checker.rows, 10)
	if row.HashRanges != nil {
		b = append(b, ':')
		b = strconv.AppendInt(b, a.fine, 10)
		for _, h := range a.row {
			b = strconv.AppendUint(append(b, ' '), h.First, 10)
			b = strconv.AppendInt(append(b, '+'), h.Count, 10)
		}
	}
	for _, r := range row.Replies {
		for i, n := range [...]int64{r.Back, r.At, r.Tokens} {
			b = strconv.AppendInt(append(b, ";,,"[i]), n, 10)
		}
	}
	d.buf = append(b, '\n')
	d.ranges.Hash.Write(d.buf)
}

// end remembers a row for the tree digest.
func (d *Digester) end(row *Row, line int64) {
	switch {
	case d.noTree != "":
		return
	case row.InputLength.V > math.MaxUint32 || row.OutputLength.V > math.MaxUint32:
		d.noTree = fmt.Sprintf("a length of 2^32 or more (line %d)", line)
	case d.ends.count == min(4*int64(d.checker.forest.max), math.MaxUint32-1):
		d.noTree = fmt.Sprintf("more than %d rows", d.ends.count)
	default:
		last := NoParent
		if ids := d.checker.forest.row; len(ids) > 0 {
			last = ids[len(ids)-1]
		}
		d.ends.add(last, uint32(row.InputLength.V), uint32(row.OutputLength.V)) //nolint:gosec // checked above
		return
	}
	d.ends.close()
}

func (d *Digester) time(row *Row, line int64) {
	switch {
	case d.arrival.lost != "":
	case !row.Timestamp.Set:
		d.arrival.lost = fmt.Sprintf("line %d has no timestamp", line)
	default:
		if d.checker.rows == 1 {
			d.first = row.Timestamp.V
		}
		if row.Timestamp.V < d.first {
			d.arrival.lost = fmt.Sprintf("line %d is earlier than the first row", line)
			return
		}
		d.buf = append(appendNanos(d.buf[:0], row.Timestamp.V-d.first), '\n')
		d.arrival.Hash.Write(d.buf)
	}
}

// appendNanos appends milliseconds, rounded to the nearest millionth, without trailing zeros; whole numbers are integers.
func appendNanos(dst []byte, ms float64) []byte {
	if isInteger(ms) {
		return strconv.AppendInt(dst, int64(ms), 10)
	}
	dst = strconv.AppendFloat(dst, ms, 'f', 6, 64)
	return bytes.TrimSuffix(bytes.TrimRight(dst, "0"), []byte{'.'})
}

// Digests returns the digests of the rows so far. A trace without rows has no digests.
func (d *Digester) Digests() Digests {
	if d.checker.rows == 0 {
		return Digests{Seq: Undefined, Tree: Undefined, Arrival: Undefined, Reason: "the trace has no rows"}
	}
	out := Digests{
		Seq: d.seq.String(), Tree: Undefined, Arrival: d.arrival.String(), Ranges: d.ranges.String(),
		Reason: join("; ", cmp.Or(d.seq.lost, d.noTree), d.arrival.lost, d.ranges.lost),
	}
	if d.seq.lost == "" && d.noTree == "" {
		out.Tree = d.tree()
	}
	return out
}
