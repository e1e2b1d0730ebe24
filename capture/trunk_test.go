// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/mooncake"
)

// asText gives a request the cells of a prompt.
func asText(t testing.TB, prompt string) func(*journal.Inference) {
	t.Helper()
	c := chain(t, prompt)
	return func(r *journal.Inference) {
		r.Prompt = journal.Prompt{Identity: journal.Text, Chain: c, Domain: 9, Key: 5}
	}
}

// TestTrunk: for journals of production, the list has the beginnings of more than its share of the prompts, domain by domain, and nothing
// else, whether all prompts are read or some.
func TestTrunk(t *testing.T) {
	common, rare := strings.Repeat("You are a helpful assistant. ", 20), strings.Repeat("Never use the letter e. ", 20)
	var parts [3][]journal.Record
	const n = 3000
	for i := range uint64(n) {
		prompt := fmt.Sprintf("conversation %d %s", i, strings.Repeat("x", 200))
		switch {
		case i%20 == 0:
			prompt = rare + prompt
		case i%2 == 0:
			prompt = common + prompt
		}
		parts[i%3] = append(parts[i%3], call(i+1, 1, 0, int64(i), asText(t, prompt)))
		if i%10 == 0 {
			parts[0] = append(parts[0], call(i+1, 2, 0, int64(i), engine(70, 71, 1000+i)))
		}
		parts[1] = append(parts[1], replayed(t, "nightly", int64(i), i+1, 3, 0, 700, 701))
	}
	parts[2] = append(parts[2], call(9999, 1, 0, 5)) // of which nothing is known
	var sources []Source
	for i, p := range parts {
		sources = append(sources, buffer(fmt.Sprint(i), journalOf(p...)))
	}
	values := func(cells []uint64) (out []string) {
		for _, c := range cells {
			out = append(out, fmt.Sprintf("%016x", c))
		}
		slices.Sort(out)
		return out
	}
	whole := func(text string) []uint64 { // the cells that are all of the text
		c := chain(t, text)
		return c.Cells[:c.Bytes/blockhash.CellSize]
	}
	for _, prompts := range []int{0, 1000} {
		res, err := Trunk(t.Context(), TrunkOptions{Share: 0.02, Seed: 3, Prompts: prompts, Tool: "test"}, sources...)
		if err != nil {
			t.Fatal(err)
		}
		if used := res.Used; res.Prompts != n+n/10 || used != int(res.Prompts) && used != prompts {
			t.Errorf("%d of %d prompts", used, res.Prompts)
		}
		l := res.List
		if len(l.Domains) != 2 || l.Domains[0].Domain != "00000007" || l.Domains[1].Domain != "00000009" || l.Domains[1].Key != "00000005" || l.Seed != 3 {
			t.Fatalf("domains %+v", l.Domains)
		}
		equal(t, "values of the engine", values([]uint64{70, 71}), l.Domains[0].Values)
		want := values(append(append([]uint64{}, whole(common)[:4]...), whole(rare)[:3]...))
		equal(t, "values of the text", want, l.Domains[1].Values)
		if err := l.Write(io.Discard); err != nil {
			t.Fatal(err)
		}
		c := chain(t, common+"conversation 1 "+strings.Repeat("x", 200))
		if g, ok := l.Trunk(9).Group(c.Cells); !ok || g != mooncake.BlockGroup(c.Cells[4]) {
			t.Errorf("a conversation is grouped by %v", g)
		}
	}
	if _, err := Trunk(t.Context(), TrunkOptions{}, buffer("empty", journalOf(call(1, 1, 0, 1)))); err == nil || !strings.Contains(err.Error(), "no prompt of production") {
		t.Errorf("journals without prompts: %v", err)
	}
}

// TestSampledRows: a trace says which samples its rows are from.
func TestSampledRows(t *testing.T) {
	of := func(s journal.Sampled) func(*journal.Inference) { return func(r *journal.Inference) { r.Sampled = s } }
	ten, one := journal.Sampled{PerMillion: 100_000, List: 42}, journal.Sampled{PerMillion: 10_000, List: 42, ByPrefix: true}
	records := []journal.Record{
		call(1, 1, 0, 1, of(ten)), call(1, 2, 1, 2, of(ten)), // one request
		call(2, 1, 0, 5, of(ten)), replayed(t, "r", 0, 3, 1, 0, 1),
	}
	m, _ := compileBytes(t, Options{}, journalOf(records...))
	want := []mooncake.Sampling{{Rate: 0.1, TrunkList: "0000002a", By: mooncake.SampleSession, Rows: 2}}
	equal(t, "one sample", want, m.meta(t, "production").Sampling)
	equal(t, "a replay", []mooncake.Sampling(nil), m.meta(t, "run r").Sampling)
	m, _ = compileBytes(t, Options{}, journalOf(append(records, call(4, 1, 0, 9, of(one)), call(5, 1, 0, 10))...))
	mixed := m.meta(t, "production")
	equal(t, "three samples", []mooncake.Sampling{{Rate: 0.01, TrunkList: "0000002a", By: mooncake.SamplePrefix, Rows: 1}, want[0], {Rate: 1, Rows: 1}}, mixed.Sampling)
	if text := mixed.MixedSampling(); text == "" {
		t.Error("a mixture of samples is not reported")
	}
	m, _ = compileBytes(t, Options{}, journalOf(call(1, 1, 0, 1)))
	equal(t, "no sample: nothing was left out", []mooncake.Sampling(nil), m.meta(t, "production").Sampling)
}
