// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/mooncake"
)

const (
	// DefaultTrunkPrompts is the default number of prompts for a trunk list. At the default share, at least about a hundred of them begin
	// with each value of the list, which is enough to find that value.
	DefaultTrunkPrompts = 1 << 14
	// maxTrunkDepth is the maximum number of values of a prompt that may belong to the trunk: 512 KiB of text, or 2 Mi tokens in blocks of
	// 512.
	maxTrunkDepth = 4096
)

// TrunkOptions configures [Trunk]. The zero TrunkOptions is usable.
type TrunkOptions struct {
	// Share is the share of prompts above which a common beginning is on the list; 0 = [mooncake.TrunkShare].
	Share float64
	// Seed is the seed of the random selection of prompts. The list records it.
	Seed uint64
	// Prompts is the maximum number of prompts, which are selected at random; 0 = [DefaultTrunkPrompts]. Each uses 8 bytes for each of its
	// values, up to 32 KiB.
	Prompts int
	// Progress, unless nil, is called from time to time with the number of bytes read.
	Progress func(bytes int64)
	// Tool is the name and version of the program, for the list.
	Tool string
}

// TrunkResult describes the result of [Trunk].
type TrunkResult struct {
	List    *mooncake.TrunkList
	Prompts int64 // of production, including repetitions
	Used    int   // prompts from which the list was made
	Damage  int64 // damaged places of the journals
	LeftOut []LeftOut
}

// drawn is a selected prompt.
type drawn struct {
	domain, key journal.Domain
	values      []uint64
}

// Trunk lists the beginnings that more than opt.Share of production's prompts in journals have. Collectors that sample use the list to tell
// prompts apart. Trunk reads each journal once, and needs memory only for the selected prompts. A trace cannot be used instead of journals,
// because Collectors do not know its ids.
func Trunk(ctx context.Context, opt TrunkOptions, journals ...Source) (TrunkResult, error) {
	opt.Share, opt.Prompts = cmp.Or(opt.Share, mooncake.TrunkShare), cmp.Or(opt.Prompts, DefaultTrunkPrompts)
	if !(opt.Share > 0 && opt.Share < 1) || opt.Prompts < 0 {
		return TrunkResult{}, fmt.Errorf("share %g must be above 0 and below 1, and the number of prompts %d above 0", opt.Share, opt.Prompts)
	}
	t := trunkReader{opt: opt, random: rand.New(rand.NewPCG(opt.Seed, 0x7472756e6b))} //nolint:gosec // no secret
	for _, j := range journals {
		if err := t.read(ctx, j); err != nil {
			return t.res, fmt.Errorf("trunk list was not made: %w", err)
		}
	}
	t.res.Used = len(t.prompts)
	if t.res.Used == 0 {
		return t.res, errors.New("these journals have no prompt of production: a trunk list is made from requests whose text, or whose engine's hashes, the telemetry contains; enable content capture in the applications, or name journals that have prompts")
	}
	t.res.List = t.list()
	return t.res, nil
}

// trunkReader selects prompts of journals.
type trunkReader struct {
	opt     TrunkOptions
	random  *rand.Rand
	prompts []drawn
	bytes   int64
	res     TrunkResult
}

func (t *trunkReader) read(ctx context.Context, j Source) error {
	progress := func(bytes int64) {
		if t.opt.Progress != nil {
			t.opt.Progress(t.bytes + bytes)
		}
	}
	found, err := j.Read(ctx, progress, func(_ []byte, d *journal.Decoder) error {
		if d.Run.IsZero() && !d.Row.Set {
			t.draw(&d.Prompt)
		}
		return nil
	})
	t.res.Damage += found.DamageCount
	t.bytes += found.Bytes
	if found.LeftOut != nil {
		t.res.LeftOut = append(t.res.LeftOut, *found.LeftOut)
	}
	return err
}

// draw selects a prompt with the right probability (reservoir sampling; Vitter's algorithm R, 1985).
func (t *trunkReader) draw(p *journal.Prompt) {
	values := p.HashIDs
	if p.Chain.Bytes > 0 {
		values = p.Chain.Cells
	}
	if len(values) == 0 && p.Chain.Bytes == 0 {
		return
	}
	t.res.Prompts++
	at := len(t.prompts)
	if at == t.opt.Prompts {
		if at = int(t.random.Int64N(t.res.Prompts)); at >= t.opt.Prompts {
			return
		}
	} else {
		t.prompts = append(t.prompts, drawn{})
	}
	into := &t.prompts[at]
	into.domain, into.key = p.Domain, p.Key
	into.values = append(into.values[:0], values[:min(len(values), maxTrunkDepth)]...)
}

// list makes the list from the selected prompts.
func (t *trunkReader) list() *mooncake.TrunkList {
	l := &mooncake.TrunkList{Schema: mooncake.TrunkListSchema, Tool: t.opt.Tool, Share: t.opt.Share, Seed: t.opt.Seed}
	slices.SortStableFunc(t.prompts, func(a, b drawn) int { return cmp.Compare(a.domain, b.domain) })
	for rest := t.prompts; len(rest) > 0; {
		n := slices.IndexFunc(rest, func(d drawn) bool { return d.domain != rest[0].domain })
		if n < 0 {
			n = len(rest)
		}
		prompts := make([][]uint64, n)
		for i, d := range rest[:n] {
			prompts[i] = d.values
		}
		key := ""
		if rest[0].key != 0 {
			key = rest[0].key.String()
		}
		l.Domains = append(l.Domains, mooncake.NewDomainTrunk(rest[0].domain.String(), key, prompts, t.opt.Share))
		rest = rest[n:]
	}
	return l
}
