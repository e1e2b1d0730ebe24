// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

// This file computes the tree digest, in as little memory as its caller allows.

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"slices"
	"strconv"

	"github.com/moonloop/moonloop/internal/heap"
	"github.com/moonloop/moonloop/internal/ondisk"
)

// ends are the rows, by the node at which each ends.
type ends struct {
	rows  *ondisk.Array[end]
	count int64                 // of rows
	last  *ondisk.Array[uint32] // for each node the last row that ends there, +1
	none  uint32                // the last row without a node, +1
}

// end is how a row ends. Both lengths are below 2^32.
type end struct {
	in, out uint32
	before  uint32 // the row before that ends at the same node, +1
}

func newEnds(opt *CheckOptions) ends {
	return ends{rows: ondisk.NewArray[end](opt.TempDir, opt.share(16)), last: ondisk.NewArray[uint32](opt.TempDir, opt.share(16))}
}

func (e *ends) err() error { return cmp.Or(e.rows.Err(), e.last.Err()) }

func (e *ends) close() {
	e.rows.Close()
	e.last.Close()
	e.count, e.none = 0, 0
}

// add takes the next row, which ends at a node, or at [NoParent].
func (e *ends) add(node, in, out uint32) {
	last := &e.none
	if node != NoParent {
		last = e.last.Put(int64(node))
	}
	*e.rows.Put(e.count) = end{in, out, *last}
	e.count++
	*last = uint32(e.count) //nolint:gosec // bounded by the caller
}

// folded is a node whose children are all known. They are a list: the first one, and for each the next one, +1.
type folded struct {
	sum         [sha256.Size]byte
	first, next uint32
}

// tree hashes the prefix forest bottom-up (Aho, Hopcroft and Ullman): a node is the digest of its children's digests,
// sorted, and of the rows that end in it. Children have larger numbers than their parents, so one pass from the
// last number down meets them first.
func (d *Digester) tree() string {
	nodes := d.checker.forest.nodes
	t := tree{
		ends: &d.ends, nodes: ondisk.NewArray[folded](d.opt.TempDir, d.opt.share(4)),
		list: sorted{most: (d.opt.share(8) + len(record{}) - 1) / len(record{}), runs: ondisk.NewArray[record](d.opt.TempDir, d.opt.share(8))}, wide: sha256.New(),
	}
	defer t.close()
	roots := uint32(0) // the first one, +1
	for n := d.checker.forest.count - 1; n >= 0; n-- {
		sum, siblings := t.node('N', t.nodes.At(n).first, d.ends.last.At(n)), &roots
		if parent := nodes.At(n).Parent; parent != NoParent {
			siblings = &t.nodes.Put(int64(parent)).first
		}
		next := *siblings
		*siblings = uint32(n + 1) //nolint:gosec // at most 2^31
		one := t.nodes.Put(n)
		one.sum, one.next = sum, next
	}
	sum := t.node('F', roots, d.ends.none)
	d.err = cmp.Or(d.err, t.nodes.Err(), t.list.runs.Err())
	return hex.EncodeToString(sum[:])
}

// tree is a tree digest under way.
type tree struct {
	*ends
	nodes *ondisk.Array[folded]
	list  sorted
	text  []byte
	wide  hash.Hash // of a node with so many children that their digests are not held in memory
	began bool      // it has begun
}

func (t *tree) close() {
	t.nodes.Close()
	t.list.runs.Close()
}

// node returns the digest of a node with these children, and rows, each the first one of a list.
func (t *tree) node(tag byte, child, row uint32) (sum [sha256.Size]byte) {
	t.text, t.began = append(t.text[:0], tag), false
	for child > 0 {
		one := t.nodes.At(int64(child) - 1)
		t.list.add(one.sum)
		child = one.next
	}
	t.list.each(func(r *record) { t.write(r[:]) })
	for row > 0 {
		one := t.rows.At(int64(row) - 1)
		var r record
		_ = strconv.AppendUint(append(strconv.AppendUint(r[:0], uint64(one.in), 10), ','), uint64(one.out), 10) // 21 digits at most
		t.list.add(r)
		row = one.before
	}
	first := true
	t.list.each(func(r *record) {
		if !first {
			t.write([]byte{'|'})
		}
		first = false
		t.write(bytes.TrimRight(r[:], "\x00"))
	})
	if !t.began {
		return sha256.Sum256(t.text)
	}
	t.wide.Write(t.text)
	t.wide.Sum(sum[:0])
	return sum
}

// write adds to what a node's digest is of.
func (t *tree) write(b []byte) {
	const most = 64 << 10 // bytes
	if len(t.text)+len(b) > most {
		if !t.began {
			t.wide.Reset()
			t.began = true
		}
		t.wide.Write(t.text)
		t.text = t.text[:0]
	}
	t.text = append(t.text, b...)
}

// record is what a node's digest is of: a child's digest, or the text of a row's end, with zeros behind it, which do not change the order of
// texts.
type record [sha256.Size]byte

func (r *record) compare(o *record) int { return bytes.Compare(r[:], o[:]) }

// sorted is a list of records that becomes one in order, as often as it is filled.
type sorted struct {
	most  int // records in memory; 0: all
	list  []record
	runs  *ondisk.Array[record] // runs in order, of the records that memory had no room for
	begin []int64               // of each run
	end   int64                 // of all
}

func (s *sorted) add(r record) {
	if s.most > 0 && len(s.list) >= max(s.most, minSorted) {
		s.spill()
	}
	s.list = append(s.list, r)
}

// minSorted records are sorted in memory, however little there is.
const minSorted = 64

func (s *sorted) spill() {
	slices.SortFunc(s.list, func(a, b record) int { return a.compare(&b) })
	s.begin = append(s.begin, s.end)
	for _, r := range s.list {
		*s.runs.Put(s.end) = r
		s.end++
	}
	s.list = s.list[:0]
}

// each visits all records in order, and empties the list.
func (s *sorted) each(visit func(*record)) {
	if s.begin == nil {
		if len(s.list) > 1 {
			slices.SortFunc(s.list, func(a, b record) int { return a.compare(&b) })
		}
		for i := range s.list {
			visit(&s.list[i])
		}
		s.list = s.list[:0]
		return
	}
	s.spill()
	type run struct {
		record
		at, end int64
	}
	merged := heap.New(func(a, b run) bool { return a.compare(&b.record) < 0 })
	for i, at := range s.begin {
		end := s.end
		if i+1 < len(s.begin) {
			end = s.begin[i+1]
		}
		merged.Push(run{s.runs.At(at), at, end})
	}
	for merged.Len() > 0 {
		r := merged.First()
		visit(&r.record)
		if r.at++; r.at < r.end {
			r.record = s.runs.At(r.at)
			merged.FixFirst()
		} else {
			merged.Pop()
		}
	}
	s.begin, s.end = nil, 0
}
