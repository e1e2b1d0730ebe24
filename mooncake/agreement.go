// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"cmp"
	"math"

	"github.com/moonloop/moonloop/internal/ondisk"
	"github.com/moonloop/moonloop/mooncake/internal/ranges"
)

// agreement checks rule V9: ranges and hash ids must describe the same prefixes. Two rows have the same hash id at a block exactly when
// they have the same range id at the end of that block. An id of ranges must always follow the same id, and its block must always have the
// same number of tokens. The check uses 4 bytes for each hash id of rows with ranges, and 16 for a row with new blocks; for ids that are
// not canonical, it also uses the memory that [RenumberRanges] documents.
type agreement struct {
	max   int
	fine  int64
	ratio int64 // fine blocks in a block
	names RenumberRanges
	row   []HashRange // the current row, with canonical ids
	chain *ranges.Lineage
	ends  *ondisk.Array[uint32] // for each hash id: the run that contains the end of its block, +1
	// A partial block can end where a whole fine block ends, see isShort. short has, for each run, the first node at which this happened, +1.
	// shorts has the other such nodes. Other ends of blocks need no list: a node older than the current row has ended a block already.
	short  *ondisk.Array[uint64]
	shorts map[uint64]struct{}
	ranges int64  // ranges read
	pieces int64  // pieces that they were cut into
	full   string // why the check has stopped; empty while it runs
}

// anyRun stands for the end of a block whose run is not known.
const anyRun = math.MaxUint32

// newAgreement returns nil if there is nothing to compare. The reader refuses block sizes that do not fit.
func newAgreement(opt *CheckOptions, blockSize, maxIDs int) *agreement {
	fine := opt.FineBlockSize
	if fine <= 0 || checkFine(fine, blockSize) != nil {
		return nil
	}
	return &agreement{
		max: maxIDs, fine: int64(fine), ratio: int64(blockSize / fine), chain: ranges.NewLineage(fine, maxIDs, opt.TempDir, opt.share(8)),
		ends: ondisk.NewArray[uint32](opt.TempDir, opt.share(16)), short: ondisk.NewArray[uint64](opt.TempDir, opt.share(16)), shorts: map[uint64]struct{}{},
	}
}

// add compares the ranges of a row with its hash ids, as numbered by the forest, and returns the first block, from 0, at which they
// disagree, or -1. Past the limit on ids it does nothing.
func (a *agreement) add(row *Row, f *forest, bad faults) (block int64) {
	a.row = a.row[:0]
	if a.full != "" || row.HashRanges == nil {
		return -1
	}
	if f.full {
		a.drop(tooManyIDs(f.max))
		return -1
	}
	before := a.chain.Next()
	a.row = a.names.Ranges(a.row, row.HashRanges)
	a.ranges += int64(len(row.HashRanges))
	a.pieces += int64(len(a.row))
	strange := ranges.Add(a.chain, "", row.InputLength.V, a.row).Strange
	if a.chain.Full || a.names.kept()+len(a.shorts) > min(a.max, f.maxNames) || ranges.TooManySteps(a.pieces, a.ranges) || a.chain.Runs() >= anyRun-1 {
		a.drop("the check of hash_ranges would need more memory or time than it may use; ids in order of first appearance need least")
		return -1
	}
	if broken := bad&(repeated|parents|fills) != 0; strange || broken {
		for _, n := range f.row {
			if a.ends.At(int64(n)) == 0 {
				*a.ends.Put(int64(n)) = anyRun
			}
		}
		if strange {
			return a.chain.Strange(before) / a.ratio
		}
		return -1 // hash ids that are not prefixes cannot agree; other rules report them
	}
	block = -1
	blocks := (row.InputLength.V-1)/a.fine + 1
	for i, at := int64(0), 0; i < int64(len(f.row)); i++ {
		var node uint64
		var run int
		var ok bool
		if node, run, at, ok = a.chain.Block(min((i+1)*a.ratio, blocks)-1, at); !ok {
			break
		}
		id := int64(f.row[i])
		switch end := a.ends.At(id); {
		case end == uint32(run)+1, end == anyRun: //nolint:gosec // bounded above
		case end == 0 && block >= 0:
			*a.ends.Put(id) = anyRun // one fault is reported once, not for all rows after it
		case end == 0 && a.unused(row, i, node, before, run):
			*a.ends.Put(id) = uint32(run) + 1 //nolint:gosec // likewise
			if a.isShort(row, i) {
				a.use(node, run)
			}
		case block < 0:
			block = i
		}
	}
	return block
}

// isShort reports whether a block is partial and ends with a whole fine block.
func (a *agreement) isShort(row *Row, block int64) bool {
	tokens := row.InputLength.V - block*a.ratio*a.fine
	return tokens < a.ratio*a.fine && tokens%a.fine == 0
}

// unused reports whether a node has never been the end of a block of this index and length.
func (a *agreement) unused(row *Row, block int64, node, before uint64, run int) bool {
	if a.isShort(row, block) {
		_, used := a.shorts[node]
		return !used && a.short.At(int64(run)) != node+1
	}
	return node >= before
}

// use stores a node of a run at which a partial block ended.
func (a *agreement) use(node uint64, run int) {
	if first := a.short.Put(int64(run)); *first == 0 {
		*first = node + 1
	} else {
		a.shorts[node] = struct{}{}
	}
}

// err returns why stored data was lost.
func (a *agreement) err() error { return cmp.Or(a.chain.Err(), a.ends.Err(), a.short.Err()) }

func (a *agreement) close() {
	a.chain.Close()
	a.ends.Close()
	a.short.Close()
}

// drop frees the memory when the limit is passed, and stores the reason.
func (a *agreement) drop(why string) {
	a.close()
	*a = agreement{full: why}
}
