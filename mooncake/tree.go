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
// last number down meets them first. A goroutine goes ahead of this pass, and reads everything but the children: the digests of nodes without
// children, as most are, need nothing else.
func (d *Digester) tree() string {
	const block = 4 << 10
	count := d.checker.forest.count
	t := tree{hashing: d.newHashing(), far: d.newSorted(), read: make(chan *outlines, 1), spent: make(chan *outlines, 2), each: max(count, 1)}
	if d.opt.Memory > 0 {
		t.each = min(t.each, int64(max(d.opt.share(4)/foldedSize, minSorted)))
	}
	t.stretches = (count + t.each - 1) / t.each
	t.near = make([]folded, t.each)
	t.later = ondisk.NewStreams(d.opt.TempDir, int(t.stretches)+1, block)
	o := outliner{hashing: d.newHashing(), ends: &d.ends, nodes: d.checker.forest.nodes, to: t.read, spent: t.spent}
	defer func() {
		t.later.Close()
		for _, list := range []*sorted{&t.list, &t.far, &o.list} {
			list.runs.Close()
		}
	}()
	go o.outline(count)
	for i := t.stretches - 1; i >= 0; i-- {
		t.stretch(i, min((i+1)*t.each, count))
	}
	t.arrived(t.stretches, &t.list) // roots
	sum := t.node('F', t.next(), t.roots)
	d.err = cmp.Or(d.err, t.err, t.list.runs.Err(), t.far.runs.Err(), o.list.runs.Err())
	return hex.EncodeToString(sum[:])
}

// outlines is what is known of some nodes without their children.
type outlines struct {
	nodes []outline // from the last one down, and after the first one the root above all
	rows  []end     // those of the nodes with children, in the order of the nodes; those of a node may go on in the next outlines
}

// outline is a node without its children.
type outline struct {
	parent uint32
	leaf   bool              // the node has no children, so this is its digest:
	sum    [sha256.Size]byte //
	ends   bool              // a row ends at it
}

// outlinesEach is the maximum number of nodes, and of rows, in outlines.
const outlinesEach = 1 << 10

// outliner reads the nodes, and the ends of rows, and makes outlines of them.
type outliner struct {
	hashing
	*ends
	nodes *ondisk.Array[Node]
	to    chan<- *outlines
	spent <-chan *outlines // to be filled again
	next  *outlines
}

// outline passes on all nodes, and the root.
func (o *outliner) outline(count int64) {
	o.next = new(outlines)
	for n := count - 1; n >= 0; n-- {
		node, row := o.nodes.At(n), o.last.At(n)
		one := outline{parent: node.Parent, leaf: node.References == node.Last, ends: row > 0} // a row with a child goes on after the node
		if one.leaf {
			o.begin('N')
			if row > 0 {
				o.addRows(o.row(row), o.row)
			}
			one.sum = o.end()
		}
		o.pass(one, row)
	}
	o.pass(outline{ends: o.none > 0}, o.none)
	o.to <- o.next
}

// row returns a row by its number, +1.
func (o *outliner) row(n uint32) end { return o.rows.At(int64(n) - 1) }

// pass passes on a node at which this row and those before it end.
func (o *outliner) pass(one outline, row uint32) {
	o.next.nodes = append(o.next.nodes, one)
	for !one.leaf && row > 0 {
		e := o.row(row)
		o.next.rows = append(o.next.rows, e)
		o.flush()
		row = e.before
	}
	o.flush()
}

// flush passes on outlines if they are full.
func (o *outliner) flush() {
	if len(o.next.nodes) < outlinesEach && len(o.next.rows) < outlinesEach {
		return
	}
	o.to <- o.next
	select {
	case o.next = <-o.spent:
		o.next.nodes, o.next.rows = o.next.nodes[:0], o.next.rows[:0]
	default:
		o.next = new(outlines)
	}
}

// tree is a tree digest that is being computed.
type tree struct {
	hashing         // of the current node
	each      int64 // nodes of a stretch
	stretches int64
	begins    int64           // the first node of the stretch
	near      []folded        // its nodes
	roots     uint32          // of the first stretch, as in folded
	later     *ondisk.Streams // by stretch: digests of children in other stretches, with their parents; then those of roots in others
	far       sorted          // the digests in later for the current stretch
	err       error

	read, spent chan *outlines
	current     *outlines
	nodes, rows int // of the current outlines that were taken
}

// next returns the next node, from the last one down.
func (t *tree) next() outline {
	for t.current == nil || t.nodes == len(t.current.nodes) {
		t.more()
	}
	t.nodes++
	return t.current.nodes[t.nodes-1]
}

// row returns the next row that ends at the current node.
func (t *tree) row(uint32) end {
	for t.rows == len(t.current.rows) {
		t.more()
	}
	t.rows++
	return t.current.rows[t.rows-1]
}

// more goes on to the next outlines.
func (t *tree) more() {
	if t.current != nil {
		t.spent <- t.current
	}
	t.current, t.nodes, t.rows = <-t.read, 0, 0
}

// stretch folds the nodes of stretch i, whose last node is end-1.
func (t *tree) stretch(i, end int64) {
	t.begins = i * t.each
	clear(t.near)
	t.arrived(i, &t.far)
	n := end - 1
	t.far.each(func(r *record) {
		for parent := int64(r.parent()); n > parent; n-- {
			t.fold(n)
		}
		t.list.add(recordOf(r[parentLength:], NoParent))
	})
	for ; n >= t.begins; n-- {
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
	one, is := &t.near[n-t.begins], t.next()
	if one.sum = is.sum; !is.leaf {
		one.sum = t.node('N', is, one.first)
	}
	switch parent := int64(is.parent); {
	case parent == int64(NoParent) && t.begins > 0:
		t.send(t.stretches, one.sum[:], NoParent)
	case parent == int64(NoParent):
		one.next, t.roots = t.roots, uint32(n+1) //nolint:gosec // at most 2^31
	case parent < t.begins:
		t.send(parent/t.each, one.sum[:], uint32(parent)) //nolint:gosec // likewise
	default:
		first := &t.near[parent-t.begins].first
		one.next, *first = *first, uint32(n-t.begins+1) //nolint:gosec // likewise
	}
}

// node returns the digest of a node, given its first child, which begins a linked list. Further children are in t.list.
func (t *tree) node(tag byte, is outline, child uint32) [sha256.Size]byte {
	t.begin(tag)
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
	if is.ends {
		t.addRows(t.row(0), t.row)
	}
	return t.end()
}

// hashing is the digest of a node that is being computed.
type hashing struct {
	list  sorted // of its children, then of its rows
	text  []byte
	line  [21]byte  // of a row
	wide  hash.Hash // of a node with so many children that their digests are not kept in memory
	began bool      // wide has data of the node
}

func (d *Digester) newHashing() hashing { return hashing{list: d.newSorted(), wide: sha256.New()} }

func (h *hashing) begin(tag byte) { h.text, h.began = append(h.text[:0], tag), false }

// addRows adds the rows that end at the node: the last one, and those before it.
func (h *hashing) addRows(e end, before func(uint32) end) {
	if e.before == 0 {
		h.write(e.appendTo(h.line[:0]))
		return
	}
	for {
		var r record
		_ = e.appendTo(r[parentLength:parentLength])
		h.list.add(r)
		if e.before == 0 {
			break
		}
		e = before(e.before)
	}
	first := true
	h.list.each(func(r *record) {
		if !first {
			h.write([]byte{'|'})
		}
		first = false
		h.write(bytes.TrimRight(r[parentLength:], "\x00"))
	})
}

// write adds a record to the data of the digest.
func (h *hashing) write(b []byte) {
	const most = 64 << 10 // bytes
	if len(h.text)+len(b) > most {
		if !h.began {
			h.wide.Reset()
			h.began = true
		}
		h.wide.Write(h.text)
		h.text = h.text[:0]
	}
	h.text = append(h.text, b...)
}

func (h *hashing) end() (sum [sha256.Size]byte) {
	if !h.began {
		return sha256.Sum256(h.text)
	}
	h.wide.Write(h.text)
	h.wide.Sum(sum[:0])
	return sum
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

func (d *Digester) newSorted() sorted {
	return sorted{most: (d.opt.share(16) + len(record{}) - 1) / len(record{}), runs: ondisk.NewArray[record](d.opt.TempDir, d.opt.share(16))}
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
