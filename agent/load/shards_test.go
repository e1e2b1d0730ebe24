// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/moonloop/moonloop/mooncake"
)

// divided reads all shards of a trace, and requires that together they have each row once, agree on the schedule, and keep groups whole.
// It returns the greatest number of rows and of tokens that a shard has, each divided by the mean of the shards.
func divided(t *testing.T, trace []byte, opt Options) (rows, tokens float64) {
	t.Helper()
	seen, home := make(map[int64]bool), make(map[groupKey]int)
	var all Parts
	for shard := range min(8, opt.Shards) { // each knows what the others would report
		opt := opt
		opt.Shard = shard
		s, err := Open(mooncake.NewReader(bytes.NewReader(trace), mooncake.ReaderOptions{Name: "test"}), opt)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		n := int64(0)
		for {
			it, err := s.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if seen[it.Index] {
				t.Fatalf("row %d is in two shards", it.Index)
			}
			seen[it.Index] = true
			n++
			key, whole := groupKey{}, it.Row.SessionID != ""
			if whole {
				key = groupKey{n: (&entry{Row: it.Row}).group()}
			} else if key.n, whole = s.division.trunk.Below(it.Row.HashIDs); whole {
				key.block = true
			}
			if at, known := home[key]; whole && known && at != shard {
				t.Fatalf("row %d is in shard %d, its group in shard %d", it.Index, shard, at)
			}
			home[key] = shard
			if s.Elsewhere(it.Index) {
				t.Errorf("row %d is said to be another shard's", it.Index)
			}
		}
		p := s.Counts().Parts
		if p.OwnRows != n || p.Plan == 0 || shard > 0 && (p.Plan != all.Plan || p.Rows != all.Rows || p.Tokens != all.Tokens) {
			t.Fatalf("shard %d has %d rows and says %+v; shard 0 says %+v", shard, n, p, all)
		}
		all = p
		rows = max(rows, float64(p.OwnRows)*float64(opt.Shards)/float64(p.Rows))
		tokens = max(tokens, float64(p.OwnTokens)*float64(opt.Shards)/float64(p.Tokens))
		if opt.Shards > 8 {
			for _, other := range s.division.parts {
				rows = max(rows, other.rows*float64(opt.Shards)/s.division.rows)
				tokens = max(tokens, other.tokens*float64(opt.Shards)/s.division.tokens)
			}
		}
	}
	if opt.Shards <= 8 && int64(len(seen)) != all.Rows {
		t.Errorf("the shards have %d of %d rows", len(seen), all.Rows)
	}
	return rows, tokens
}

// TestShardsOfThePublicTrace: although all rows of the trace begin with the same block, no shard has more than 1.2 times the mean.
func TestShardsOfThePublicTrace(t *testing.T) {
	trace, err := os.ReadFile(filepath.Join("..", "..", "..", "shared", "data", "conversation_trace.jsonl"))
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("the public conversation trace is not in ../shared/data: see CONTRIBUTING.md")
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []Options{
		{Shards: 1},
		{Shards: 2},
		{Shards: 8},
		{Shards: 64},
		{Shards: 8, MaxRows: 5000},
		{Shards: 8, Spread: SpreadUniform},
		{Shards: 8, Start: 1_000_000 * ms, End: 2_000_000 * ms},
	} {
		if testing.Short() && c.MaxRows == 0 {
			continue
		}
		t.Run(fmt.Sprintf("%d/%d/%v", c.Shards, c.MaxRows, c.Start), func(t *testing.T) {
			rows, tokens := divided(t, trace, c)
			t.Logf("the largest shard has %.3f of the mean of the rows, %.3f of the tokens", rows, tokens)
			if rows > 1.2 || tokens > 1.2 {
				t.Errorf("a shard has %.2f times the mean of the rows, %.2f of the tokens", rows, tokens)
			}
		})
	}
}

// TestShardsKeepGroupsWhole divides sessions, rows that share one of several system prompts, and rows that share nothing.
func TestShardsKeepGroupsWhole(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for name, row := range map[string]func(i int) string{
		"sessions": func(i int) string {
			return fmt.Sprintf(`{"timestamp": %d, "input_length": %d, "output_length": 9, "hash_ids": [0, %d], "session_id": "s%d"}`, i, 600+random.IntN(400), i+1, random.IntN(300))
		},
		"prefixes below a trunk": func(i int) string {
			return fmt.Sprintf(`{"timestamp": %d, "input_length": %d, "output_length": 9, "hash_ids": [0, %d, %d]}`, i, 1100+random.IntN(400), 1+random.IntN(300), 1000+i)
		},
		"the trunk alone": func(i int) string {
			return fmt.Sprintf(`{"timestamp": %d, "input_length": 512, "output_length": %d, "hash_ids": [0]}`, i, 1+random.IntN(9))
		},
		"no ids": func(i int) string {
			return fmt.Sprintf(`{"timestamp": %d, "input_length": %d, "output_length": 9}`, i, 1+random.IntN(900))
		},
	} {
		t.Run(name, func(t *testing.T) {
			var trace bytes.Buffer
			for i := range 3000 {
				fmt.Fprintln(&trace, row(i))
			}
			for _, lookahead := range []int{0, 200} {
				rows, tokens := divided(t, trace.Bytes(), Options{Shards: 7, Sessions: mooncake.SessionFull, Lookahead: lookahead})
				if rows > 1.2 || tokens > 1.2 {
					t.Errorf("a shard has %.2f times the mean of the rows, %.2f of the tokens", rows, tokens)
				}
			}
		})
	}
}

// TestShardOfOneLargeSession: a session that is larger than a shard's part has a shard of its own, which reports its size.
func TestShardOfOneLargeSession(t *testing.T) {
	var lines []string
	for i := range 1000 {
		session := "large"
		if i%5 == 4 { // a fifth of the rows
			session = fmt.Sprint(i)
		}
		lines = append(lines, fmt.Sprintf(`{"timestamp": %d, "input_length": 500, "output_length": 12, "hash_ids": [%d], "session_id": %q}`, i, i, session))
	}
	var own []int64
	for shard := range 4 {
		s, err := stream(t, Options{Shard: shard, Shards: 4, Sessions: mooncake.SessionFull}, lines...)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := items(t, s); err != nil {
			t.Fatal(err)
		}
		p := s.Counts().Parts
		own = append(own, p.OwnRows)
		if shard == 0 && (p.LargestRows != 800 || p.LargestTokens != 800*512) {
			t.Errorf("the largest session has %d rows and %d tokens, it says", p.LargestRows, p.LargestTokens)
		}
	}
	if own[0] != 800 || slices.Max(own[1:]) > 68 {
		t.Errorf("the shards have %d rows", own)
	}
}
