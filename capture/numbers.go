// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"encoding/binary"
	"hash/maphash"
	"math"
	"math/bits"

	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/internal/ondisk"
)

// numbers gives ids the numbers 0, 1, 2, ... by first appearance. An id is (domain, 64 bits).
type numbers struct {
	next    uint64
	domains map[journal.Domain]*domain
	outside *outside // knows all ids, if they do not fit into memory
}

// domain has the numbers of the ids of one domain. Ids that came as 0, 1, 2, ..., like those of a replay, use 8 bytes each. The first id
// out of this order, and all new ids after it, use about 40.
type domain struct {
	inOrder []uint64
	other   map[uint64]uint64
}

// renumber replaces the ids of a domain by their numbers, in place. If ids do not fit into memory, names has the names of these ids in
// outside.
func (n *numbers) renumber(dom journal.Domain, ids []uint64, names []int64) {
	if n.outside != nil {
		for i := range ids {
			ids[i] = n.outside.number(names[i], &n.next)
		}
		return
	}
	d := n.domains[dom]
	if d == nil {
		if n.domains == nil {
			n.domains = map[journal.Domain]*domain{}
		}
		d = &domain{}
		n.domains[dom] = d
	}
	for i, id := range ids {
		ids[i] = d.number(id, &n.next)
	}
}

// number returns the number of an id; a new id gets the next number.
func (d *domain) number(id uint64, next *uint64) uint64 {
	if id < uint64(len(d.inOrder)) {
		return d.inOrder[id]
	}
	if d.other == nil && id == uint64(len(d.inOrder)) {
		d.inOrder = append(d.inOrder, *next)
		*next++
		return *next - 1
	}
	number, known := d.other[id]
	if !known {
		if d.other == nil {
			d.other = map[uint64]uint64{}
		}
		number = *next
		d.other[id] = number
		*next++
	}
	return number
}

// fresh appends numbers of ids that never occur again.
func (n *numbers) fresh(ids []uint64, count int) []uint64 {
	for range count {
		ids = append(ids, n.next)
		n.next++
	}
	return ids
}

// err returns the error that made numbers wrong, if any.
func (n *numbers) err() error {
	if n.outside == nil {
		return nil
	}
	return n.outside.table.Err()
}

// distinct estimates how many distinct ids a set has, to 2 % (HyperLogLog: Flajolet, Fusy, Gandouet and Meunier, 2007). Senders cannot know
// the seed, so they cannot choose ids that are underestimated.
type distinct struct {
	seed  maphash.Seed
	ranks [1 << distinctBits]uint8 // for each value of a hash's first bits, the greatest rank: number of leading zeros in the others, plus 1
	entry []byte
}

const distinctBits = 12

func newDistinct() *distinct { return &distinct{seed: maphash.MakeSeed()} }

// add adds ids.
func (d *distinct) add(partition uint32, dom journal.Domain, ids []uint64) {
	for _, id := range ids {
		d.entry = appendEntry(d.entry[:0], partition, dom, id)
		h := maphash.Bytes(d.seed, d.entry)
		rank := uint8(bits.LeadingZeros64(h<<distinctBits|1)) + 1 //nolint:gosec // at most 64
		d.ranks[h>>(64-distinctBits)] = max(d.ranks[h>>(64-distinctBits)], rank)
	}
}

// count returns the estimate.
func (d *distinct) count() int64 {
	const n = float64(len(d.ranks))
	sum, zeros := 0.0, 0.0
	for _, rank := range d.ranks {
		sum += math.Ldexp(1, -int(rank))
		if rank == 0 {
			zeros++
		}
	}
	count := 0.7213 / (1 + 1.079/n) * n * n / sum
	if count <= 2.5*n && zeros > 0 {
		count = n * math.Log(n/zeros) // few: as many as leave so many ranks empty
	}
	return int64(math.Round(count))
}

const (
	idCost = 64 // maximum memory for an id, in bytes
	// Ids that do not fit into memory are divided into parts, each of which does.
	maxIDParts = 1 << 12
	minIDBlock = 512 // minimum size of a stream's blocks, in bytes
	maxIDBlock = 32 << 10
	idEntry    = 4 + 4 + 8 // partition, domain, id
)

// outside numbers ids that do not fit into memory together. They must all be passed twice, in the same order. The first time they are
// divided into parts by a hash, and stored on disk. A part is small enough to look up its ids in memory. So each id gets a name: an index
// that counts by part, and within a part by first appearance. The names are stored on disk in the order in which the ids came. The second
// time, the names are read together with the ids, and a table of numbers by name, which has pages on disk, needs no other look-up.
type outside struct {
	dir    string
	memory int // bytes for the ids of a part, and for the table
	seed   maphash.Seed
	ids    *ondisk.Streams       // for the first pass
	names  *ondisk.Streams       // for the second pass; within each part, counted from 0
	first  []int64               // for each part, the name of its first id
	table  *ondisk.Array[uint64] // by name: the number plus 1; 0 if there is none yet
	entry  []byte
	list   []int64
}

// outsideOf returns an outside for this many distinct ids; nil if they fit into memory.
func outsideOf(ids int64, dir string, memory int) *outside {
	if ids <= int64(memory/4/idCost) {
		return nil
	}
	parts := min(ids*idCost/int64(max(memory/4, 1))+1, maxIDParts)
	block := min(max(memory/16/int(parts), minIDBlock), maxIDBlock)
	return &outside{
		dir: dir, memory: memory, seed: maphash.MakeSeed(),
		ids: ondisk.NewStreams(dir, int(parts), block), names: ondisk.NewStreams(dir, int(parts), block), first: make([]int64, parts),
	}
}

// part returns the part of an id, and leaves the entry of the id in o.entry. Senders that choose ids cannot fill one part with them.
func (o *outside) part(partition uint32, dom journal.Domain, id uint64) int {
	o.entry = appendEntry(o.entry[:0], partition, dom, id)
	return int(maphash.Bytes(o.seed, o.entry) % uint64(len(o.first))) //nolint:gosec // below the number of parts
}

// appendEntry appends idEntry bytes that identify an id.
func appendEntry(dst []byte, partition uint32, dom journal.Domain, id uint64) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, partition)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(dom))
	return binary.LittleEndian.AppendUint64(dst, id)
}

// add adds the ids of a row in the first pass.
func (o *outside) add(partition uint32, dom journal.Domain, ids []uint64) error {
	for _, id := range ids {
		if err := o.ids.Add(o.part(partition, dom, id), o.entry); err != nil {
			return err
		}
	}
	return nil
}

// settle assigns names to all added ids.
func (o *outside) settle() error {
	next := int64(0)
	var entry [idEntry]byte
	var name []byte
	known := map[[idEntry]byte]int64{}
	for part := range o.first {
		o.first[part] = next
		clear(known)
		for {
			ok, err := o.ids.Read(part, entry[:])
			if err != nil {
				return err
			}
			if !ok {
				break
			}
			n, is := known[entry]
			if !is {
				n = int64(len(known))
				known[entry] = n
			}
			name = binary.AppendUvarint(name[:0], uint64(n))
			if err := o.names.Add(part, name); err != nil {
				return err
			}
		}
		next += int64(len(known))
	}
	o.ids.Close()
	o.table = ondisk.NewArray[uint64](o.dir, o.memory/8)
	return nil
}

// row returns the names of the ids of a row, valid until the next call. Each added row must be passed again, in order.
func (o *outside) row(partition uint32, dom journal.Domain, ids []uint64) ([]int64, error) {
	o.list = o.list[:0]
	for _, id := range ids {
		part := o.part(partition, dom, id)
		n, err := o.names.Uvarint(part)
		if err != nil {
			return nil, err
		}
		o.list = append(o.list, o.first[part]+int64(n)) //nolint:gosec // as it was written
	}
	return o.list, o.table.Err()
}

// number returns the number of the id with a name; a new id gets the next number.
func (o *outside) number(name int64, next *uint64) uint64 {
	if n := o.table.At(name); n > 0 {
		return n - 1
	}
	*next++
	*o.table.Put(name) = *next
	return *next - 1
}

func (o *outside) close() {
	if o != nil {
		o.ids.Close()
		o.names.Close()
		o.table.Close()
	}
}
