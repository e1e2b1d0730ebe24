// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

// This file computes the tree digest, with as little memory as its caller allows.

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"slices"
	"strconv"

	"github.com/moonloop/moonloop/internal/heap"
	"github.com/moonloop/moonloop/internal/ondisk"
)

// ends are the ends of rows, by the node at which each ends.
type ends struct {
	rows  *ondisk.Array[end]
	count int64                 // of rows
	last  *ondisk.Array[uint32] // for each node the last row that ends there, +1
	none  uint32                // the last row without a node, +1
}

// end is the end of a row. Both lengths are below 2^32.
type end struct {
	in, out uint32
	before  uint32 // the previous row that ends at the same node, +1
}

// appendTo appends the text of an end, of at most 21 bytes.
func (e *end) appendTo(dst []byte) []byte {
	return strconv.AppendUint(append(strconv.AppendUint(dst, uint64(e.in), 10), ','), uint64(e.out), 10)
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

// add adds the next row, which ends at a node, or at [NoParent].
func (e *ends) add(node, in, out uint32) {
	last := &e.none
	if node != NoParent {
		last = e.last.Put(int64(node))
	}
	*e.rows.Put(e.count) = end{in, out, *last}
	e.count++
	*last = uint32(e.count) //nolint:gosec // bounded by the caller
}

// The digest of a node is needed when that of its parent is computed. The parent has a smaller number, often a much smaller one: the
// parent of a turn's first new block belongs to the previous turn. So nodes are folded from the last one down, in stretches that fit into
// memory. A digest for a parent in an earlier stretch is written to the stream of that stretch, and sorted by parents when that stretch is
// folded. Nothing is looked up on disk.

// folded is a node of the stretch. Its children form a linked list: first is the index of its first child, and next that of the next child
// of its parent, each +1.
type folded struct {
	sum         [sha256.Size]byte
	first, next uint32
}

// foldedSize is the size of a folded node in bytes.
const foldedSize = sha256.Size + 8

// tree hashes the prefix forest bottom-up (Aho, Hopcroft and Ullman): a node is the digest of its children's digests,
// sorted, and of the rows that end in it. Children have larger numbers than their parents, so one pass from the
// last number down meets them first.
func (d *Digester) tree() string {
	const block = 4 << 10
	count := d.checker.forest.count
	t := tree{ends: &d.ends, parents: d.checker.forest.nodes, each: max(count, 1), wide: sha256.New()}
	if d.opt.Memory > 0 {
		t.each = min(t.each, int64(max(d.opt.share(4)/foldedSize, minSorted)))
	}
	t.stretches = (count + t.each - 1) / t.each
	t.near = make([]folded, t.each)
	t.later = ondisk.NewStreams(d.opt.TempDir, int(t.stretches)+1, block)
	for _, list := range []*sorted{&t.list, &t.far} {
		*list = sorted{most: (d.opt.share(16) + len(record{}) - 1) / len(record{}), runs: ondisk.NewArray[record](d.opt.TempDir, d.opt.share(16))}
	}
	defer t.close()
	for i := t.stretches - 1; i >= 0; i-- {
		t.stretch(i, min((i+1)*t.each, count))
	}
	t.arrived(t.stretches, &t.list) // roots
	sum := t.node('F', t.roots, d.ends.none)
	d.err = cmp.Or(d.err, t.err, t.list.runs.Err(), t.far.runs.Err())
	return hex.EncodeToString(sum[:])
}

// tree is a tree digest that is being computed.
type tree struct {
	*ends
	parents   *ondisk.Array[Node]
	each      int64 // nodes of a stretch
	stretches int64
	begin     int64           // of the stretch
	near      []folded        // its nodes
	roots     uint32          // of the first stretch, as in folded
	later     *ondisk.Streams // by stretch: digests of children in other stretches, with their parents; then those of roots in others
	far       sorted          // the digests in later for the current stretch
	list      sorted          // the data of a node's digest
	text      []byte
	line      [21]byte  // of a row
	wide      hash.Hash // of a node with so many children that their digests are not kept in memory
	began     bool      // wide has data of the current node
	err       error
}

func (t *tree) close() {
	t.later.Close()
	t.list.runs.Close()
	t.far.runs.Close()
}

// stretch folds the nodes of stretch i, whose last node is end-1.
func (t *tree) stretch(i, end int64) {
	t.begin = i * t.each
	clear(t.near)
	t.arrived(i, &t.far)
	n := end - 1
	t.far.each(func(r *record) {
		for parent := int64(r.parent()); n > parent; n-- {
			t.fold(n)
		}
		t.list.add(recordOf(r[parentLength:], NoParent))
	})
	for ; n >= t.begin; n-- {
		t.fold(n)
	}
}

// arrived adds to a list what other stretches sent to a stretch.
func (t *tree) arrived(i int64, to *sorted) {
	for t.err == nil {
		var r record
		ok, err := t.later.Read(int(i), r[:])
		if t.err = err; !ok {
			return
		}
		to.add(r)
	}
}

// send passes a digest to another stretch.
func (t *tree) send(to int64, sum []byte, parent uint32) {
	if r := recordOf(sum, parent); t.err == nil {
		t.err = t.later.Add(int(to), r[:])
	}
}

// fold computes the digest of a node whose children outside the stretch are in the list, and passes it to its parent.
func (t *tree) fold(n int64) {
	one := &t.near[n-t.begin]
	one.sum = t.node('N', one.first, t.last.At(n))
	switch parent := int64(t.parents.At(n).Parent); {
	case parent == int64(NoParent) && t.begin > 0:
		t.send(t.stretches, one.sum[:], NoParent)
	case parent == int64(NoParent):
		one.next, t.roots = t.roots, uint32(n+1) //nolint:gosec // at most 2^31
	case parent < t.begin:
		t.send(parent/t.each, one.sum[:], uint32(parent)) //nolint:gosec // likewise
	default:
		first := &t.near[parent-t.begin].first
		one.next, *first = *first, uint32(n-t.begin+1) //nolint:gosec // likewise
	}
}

// node returns the digest of a node, given its first child and the first row that ends at it, each of which begins a linked list. Further
// children are in t.list.
func (t *tree) node(tag byte, child, row uint32) (sum [sha256.Size]byte) {
	t.text, t.began = append(t.text[:0], tag), false
	if child > 0 && t.near[child-1].next == 0 && t.list.empty() { // as for most nodes: there is nothing to sort
		t.write(t.near[child-1].sum[:])
		child = 0
	}
	for child > 0 {
		one := &t.near[child-1]
		t.list.add(recordOf(one.sum[:], NoParent))
		child = one.next
	}
	t.list.each(func(r *record) { t.write(r[parentLength:]) })
	if row > 0 {
		if one := t.rows.At(int64(row) - 1); one.before == 0 {
			t.write(one.appendTo(t.line[:0]))
			row = 0
		}
	}
	for row > 0 {
		one := t.rows.At(int64(row) - 1)
		var r record
		_ = one.appendTo(r[parentLength:parentLength])
		t.list.add(r)
		row = one.before
	}
	first := true
	t.list.each(func(r *record) {
		if !first {
			t.write([]byte{'|'})
		}
		first = false
		t.write(bytes.TrimRight(r[parentLength:], "\x00"))
	})
	if !t.began {
		return sha256.Sum256(t.text)
	}
	t.wide.Write(t.text)
	t.wide.Sum(sum[:0])
	return sum
}

// write adds a record to the data of a node's digest.
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

// record is a part of the data of a node's digest: a child's digest, or the text of a row's end, followed by zeros, which do not change the
// order of texts. It is preceded by its parent, so that the last parent comes first, or by zeros if it has none.
type record [parentLength + sha256.Size]byte

const parentLength = 4

func recordOf(sum []byte, parent uint32) (r record) {
	binary.BigEndian.PutUint32(r[:], ^parent) // 0 for NoParent
	copy(r[parentLength:], sum)
	return r
}

func (r *record) parent() uint32 { return ^binary.BigEndian.Uint32(r[:]) }

func (r *record) compare(o *record) int {
	if a, b := binary.BigEndian.Uint64(r[:]), binary.BigEndian.Uint64(o[:]); a != b {
		return cmp.Compare(a, b)
	}
	return bytes.Compare(r[:], o[:])
}

// sorted is a list of records that is filled and then read in order, any number of times.
type sorted struct {
	most  int // records in memory; 0: all
	list  []record
	runs  *ondisk.Array[record] // sorted runs of the records that did not fit into memory
	begin []int64               // of each run
	end   int64                 // of all
}

func (s *sorted) empty() bool { return s.begin == nil && len(s.list) == 0 }

func (s *sorted) add(r record) {
	if s.most > 0 && len(s.list) >= max(s.most, minSorted) {
		s.spill()
	}
	s.list = append(s.list, r)
}

// minSorted is the minimum number of records that are sorted in memory.
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
	runs := make([]*sortedRun, len(s.begin))
	for i, at := range s.begin {
		runs[i] = &sortedRun{s.runs.At(at), at, s.end}
		if i+1 < len(s.begin) {
			runs[i].end = s.begin[i+1]
		}
	}
	merged := heap.NewTournament(runs, (*sortedRun).first, (*sortedRun).before)
	for r, ok := merged.First(); ok; r, ok = merged.First() {
		visit(&r.record)
		if r.at++; r.at < r.end {
			r.record = s.runs.At(r.at)
		}
		merged.FixFirst()
	}
	s.begin, s.end = nil, 0
}

// sortedRun is a run that is being read: its record at this index.
type sortedRun struct {
	record
	at, end int64
}

func (r *sortedRun) first() (bits uint64, ok bool) {
	return binary.BigEndian.Uint64(r.record[:]), r.at < r.end
}

func (r *sortedRun) before(o *sortedRun) bool { return r.compare(&o.record) < 0 }
