// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/mooncake"
)

// everything returns records of all shapes that a compile distinguishes: traffic of all kinds, conversations whose engines reorder their
// prompts, agents with their tools, names of one model, producers and clocks that differ, and a replay; with thin, also sparse lists of ends.
func everything(t *testing.T, thin bool) []journal.Record {
	t.Helper()
	h := newHasher(t, blockhash.TextDomain)
	records := traffic(t, 150)
	chats, _ := productionOf(t, h, conversations(4, 12), 16, movedLast("system"))
	records = append(records, ofModel(t, chats, "reordered", 1<<30)...)
	told, _ := productionOf(t, h, withTools(conversations(5, 6)), 16, movedLast("tools"))
	for _, r := range ofModel(t, told, "told", 1<<31) {
		r := r.(*journal.Inference)
		r.Order, r.CachedTokens = journal.ToolsLast, mooncake.Opt[int64]{}
		records = append(records, r)
	}
	if thin {
		short, _ := productionOf(t, h, sampled(smallTalk)(6, 6), 1, asRecorded)
		asReceived(short, true)
		records = append(records, ofModel(t, short, "short", 1<<32)...)
	}
	records = append(records, team()...)
	for i := range uint64(40) {
		records = append(records, call(1<<33+i, 1, 0, int64(i), tokens(700, 5), cached(600), func(r *journal.Inference) {
			r.Model, r.Producer, r.Clock = name(t, "dated"), 3+i%2, 7
			if r.Answered = name(t, "dated-2025-01-02"); i == 17 || i == 19 {
				r.Exclusive = true
			}
		}), call(1<<33+i, 2, 1, int64(i)+9000, tokens(700, 5), func(r *journal.Inference) { r.Clock = 8 }))
	}
	rng := rand.New(rand.NewPCG(9, 9))
	records = append(records, asReplay(t, "replay", generatedRows(rng, 60), 1<<40, rng)...)
	return append(records, everyField(t)...)
}

// generatedRows returns n rows of a replay that share prefixes.
func generatedRows(rng *rand.Rand, n int) (rows []*mooncake.Row) {
	for i := range n {
		row := &mooncake.Row{Timestamp: opt(float64(i)), OutputLength: opt[int64](5)}
		for k := range uint64(1 + rng.IntN(6)) {
			row.HashIDs = append(row.HashIDs, k*1000+uint64(i)%(k*k+1))
		}
		row.InputLength = opt(int64(len(row.HashIDs)) * 512)
		rows = append(rows, row)
	}
	return rows
}

// deal puts records into journals at random, some into several.
func deal(rng *rand.Rand, records []journal.Record, journals int) (dealt [][]byte) {
	hands := make([][]journal.Record, journals)
	for _, i := range rng.Perm(len(records)) {
		for again := true; again; again = rng.IntN(10) == 0 {
			j := rng.IntN(journals)
			hands[j] = append(hands[j], records[i])
		}
	}
	for _, hand := range hands {
		dealt = append(dealt, journalOf(hand...))
	}
	return dealt
}

// inShards compiles journals in this many concurrent shards.
func inShards(t *testing.T, o Options, shards int, journals ...[]byte) (memory, Result) {
	t.Helper()
	var sources []Source
	for i, j := range journals {
		sources = append(sources, buffer(fmt.Sprint(i), j))
	}
	m, dir := memory{}, t.TempDir()
	results, errs := make([]Result, shards), make([]error, shards)
	var all sync.WaitGroup
	for i := range shards {
		all.Go(func() {
			o := o
			o.TempDir = dir
			results[i], errs[i] = CompileShard(t.Context(), o, Shard{i, shards, filepath.Join(dir, "work")}, m.sink, sources...)
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "work", "*"))
	if err != nil || slices.ContainsFunc(left, func(name string) bool { return !strings.HasSuffix(name, ".json") }) {
		t.Errorf("left in the folder: %v, %v", left, err)
	}
	equal(t, "temporary files left", 1, countFiles(t, dir))
	return m, results[0]
}

// TestShards: for any distribution of records to journals, and any number of shards, the traces and their sidecars are, byte for byte,
// those of one process.
func TestShards(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	all := map[bool][]journal.Record{} // by whether there are sparse lists of ends
	for i, c := range []struct {
		opt    Options
		thin   bool
		shards int
		memory int
	}{
		{Options{}, false, 3, 1 << 14},
		{Options{Graphs: GraphsAll, BlockSize: 64}, true, 8, DefaultMemory},
		{Options{MissingTokens: MissingEstimate, MaxRuns: 2}, true, 2, 1 << 18},
		{Options{Format: FormatMooncake, MissingTokens: MissingEstimate, Graphs: GraphsAll}, false, 1, DefaultMemory},
		{Options{FollowEngine: FollowNever, Replays: ReplaysDrop}, false, 5, 1 << 18},
	} {
		if all[c.thin] == nil {
			all[c.thin] = everything(t, c.thin)
		}
		dealt := deal(rng, all[c.thin], 1+rng.IntN(7))
		want, wantRes := compileBytes(t, c.opt, dealt...)
		o := c.opt
		o.Memory = c.memory
		got, res := inShards(t, o, c.shards, dealt...)
		equal(t, "files", len(want), len(got))
		for name, b := range want {
			if !bytes.Equal(b, got[name]) {
				t.Errorf("case %d in %d shards: %s differs:\n%s", i, c.shards, name, firstDifference(b, got[name]))
			}
		}
		equal(t, fmt.Sprintf("case %d in %d shards: result", i, c.shards), wantRes, res)
		if i > 0 {
			continue
		}
		for _, identity := range []string{"text", "engine", "lengths", "structure"} { // else the test says little
			if want.meta(t, production).Identity[identity] == 0 {
				t.Errorf("no row of identity %s", identity)
			}
		}
		if want.meta(t, production).Transformations[0].Parameters["prompt_order"] == nil || want.meta(t, production).Transformations[0].Parameters["model_aliases"] == nil {
			t.Error("no prompt order, or no model of two names")
		}
	}
}

// firstDifference shows the first difference between two traces.
func firstDifference(want, got []byte) string {
	w, g := bytes.Split(want, []byte("\n")), bytes.Split(got, []byte("\n"))
	for i := range w {
		if i >= len(g) || !bytes.Equal(w[i], g[i]) {
			line := []byte("nothing")
			if i < len(g) {
				line = g[i]
			}
			return fmt.Sprintf("line %d of %d and %d\nwant %s\ngot  %s", i+1, len(w), len(g), w[i], line)
		}
	}
	return "more lines"
}

// TestShardKilled kills a shard in every phase, and starts it again.
func TestShardKilled(t *testing.T) {
	records := everything(t, false)
	dealt := deal(rand.New(rand.NewPCG(1, 2)), records, 3)
	want, _ := compileBytes(t, Options{}, dealt...)
	var sources []Source
	for i, j := range dealt {
		sources = append(sources, buffer(fmt.Sprint(i), j))
	}
	dir, m := t.TempDir(), memory{}
	var all sync.WaitGroup
	run := func(i int) {
		killed := errors.New("killed")
		for {
			// The first time that a stage begins, the shard is killed, and then started again.
			ctx, kill := context.WithCancelCause(t.Context())
			died := map[Stage]bool{}
			o := Options{Memory: 1 << 14, TempDir: dir, Progress: func(stage Stage, _, _ int64) {
				mark := filepath.Join(dir, fmt.Sprintf("%d %s", i, stage))
				if _, err := os.Stat(mark); err == nil || died[stage] || stage == StageWait {
					return
				}
				if err := os.WriteFile(mark, nil, 0o600); err != nil {
					t.Error(err)
				}
				died[stage] = true
				kill(killed)
			}}
			_, err := CompileShard(ctx, o, Shard{i, 2, filepath.Join(dir, "work")}, m.sink, sources...)
			kill(nil)
			if errors.Is(err, killed) {
				continue
			}
			if err != nil {
				t.Error(err)
			}
			return
		}
	}
	for i := range 2 {
		all.Go(func() { run(i) })
	}
	all.Wait()
	for name, b := range want {
		if !bytes.Equal(b, m[name]) {
			t.Errorf("%s differs: %s", name, firstDifference(b, m[name]))
		}
	}
	marks, _ := filepath.Glob(filepath.Join(dir, "*writing*"))
	equal(t, "shards that were killed while they wrote", 1, len(marks))
}

// TestShardRefuses: shards that do not belong to one compile are refused.
func TestShardRefuses(t *testing.T) {
	j := buffer("a", journalOf(call(1, 1, 0, 0)))
	longer := buffer("a", journalOf(call(1, 1, 0, 0), call(2, 1, 0, 0)))
	dir := t.TempDir()
	first := func(o Options, s Shard, sources ...Source) error {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		o.Progress = func(stage Stage, _, _ int64) {
			if stage == StageWait {
				cancel()
			}
		}
		s.Dir = dir
		_, err := CompileShard(ctx, o, s, memory{}.sink, sources...)
		return err
	}
	if err := first(Options{}, Shard{Index: 1, Of: 2}, j); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	for _, c := range []struct {
		why    string
		o      Options
		s      Shard
		source Source
	}{
		{"number of shards: 2 there, 3 here", Options{}, Shard{Index: 0, Of: 3}, j},
		{"block size 512", Options{BlockSize: 16}, Shard{Index: 0, Of: 2}, j},
		{"bytes of journals", Options{}, Shard{Index: 0, Of: 2}, longer},
		{"below the number of shards", Options{}, Shard{Index: 2, Of: 2}, j},
		{"only the journals that it compiles", Options{Before: []Source{j}}, Shard{Index: 0, Of: 2}, j},
	} {
		if err := first(c.o, c.s, c.source); err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("want an error that says %q, got %v", c.why, err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "read-0001.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := first(Options{}, Shard{Index: 1, Of: 2}, j); err == nil || !strings.Contains(err.Error(), "empty folder") {
		t.Errorf("a broken statement: %v", err)
	}
}
