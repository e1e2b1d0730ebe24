// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"bytes"
	"io"
	"math"
	"strings"
	"testing"
)

// TestSampler: the rate is kept, lower rates keep subsets of higher ones, another seed keeps other rows, and a session differs from a
// block with the same value.
func TestSampler(t *testing.T) {
	const groups = 200_000
	kept := map[float64]int{}
	others, kinds := 0, 0
	for n := range uint64(groups) {
		{ // the ids of a trace are small numbers, unlike keyed hashes, which are random
			g := BlockGroup(n)
			before := false
			for _, rate := range []float64{0.001, 0.01, 0.1, 1} {
				keeps := Sampler{Rate: rate, Seed: 1}.Keeps(g)
				if before && !keeps {
					t.Fatalf("group %d is kept at a lower rate, and not at %g", n, rate)
				}
				if before = keeps; keeps {
					kept[rate]++
				}
			}
		}
		half, b := Sampler{Rate: 0.5, Seed: 1}, BlockGroup(n)
		if half.Keeps(b) != (Sampler{Rate: 0.5, Seed: 2}).Keeps(b) {
			others++
		}
		if half.Keeps(b) != half.Keeps(Group{false, n}) {
			kinds++
		}
	}
	for rate, n := range kept {
		if sd := math.Sqrt(groups * rate * (1 - rate)); math.Abs(float64(n)-groups*rate) > 4*sd {
			t.Errorf("%d of %d groups at a rate of %g", n, groups, rate)
		}
	}
	for what, n := range map[string]int{"seeds": others, "kinds": kinds} {
		if math.Abs(float64(n)-groups/2) > 4*math.Sqrt(groups/4.) {
			t.Errorf("two %s differ in %d of %d groups: they are not independent", what, n, groups)
		}
	}
	if (Sampler{}).Keeps(BlockGroup(0)) {
		t.Error("a rate of 0 keeps something")
	}
}

// TestGroup: the group to which a row belongs.
func TestGroup(t *testing.T) {
	trunk := &Trunk{Blocks: [][2]uint64{{0, 2}}}
	row := func(session string, ids ...uint64) *Row {
		r := &Row{InputLength: Some(int64(512 * len(ids))), SessionID: session}
		if ids != nil {
			r.HashIDs = ids
		}
		return r
	}
	for _, c := range []struct {
		why   string
		row   *Row
		order SampleOrder
		want  Group
	}{
		{"the first block after the trunk", row("", 0, 1, 7, 8), SampleSession, BlockGroup(7)},
		{"all of the trunk: the last block", row("", 0, 1), SampleSession, BlockGroup(1)},
		{"the session first", row("s", 0, 1, 7), SampleSession, SessionGroup("s")},
		{"the prompt first", row("s", 0, 1, 7), SamplePrefix, BlockGroup(7)},
		{"no prompt: still the session", row("s"), SamplePrefix, SessionGroup("s")},
		{"neither session nor prompt: the row itself", row(""), SamplePrefix, BlockGroup(9)},
	} {
		if got := c.row.Group(trunk, c.order, 512, 9); got != c.want {
			t.Errorf("%s: %v, want %v", c.why, got, c.want)
		}
	}
}

// TestTrunkList: a list is unchanged after it is written and read, and its fingerprint shows whether two samples used the same list.
func TestTrunkList(t *testing.T) {
	prompts := [][]uint64{}
	for i := range uint64(100) {
		prompts = append(prompts, []uint64{1<<64 - 1, 5, 100 + i%4, 1000 + i})
	}
	list := func(seed uint64, share float64) *TrunkList {
		l := &TrunkList{Schema: 1, Share: share, Seed: seed, Domains: []DomainTrunk{NewDomainTrunk("0000002a", "000000ff", prompts, share)}}
		var b bytes.Buffer
		if err := l.Write(&b); err != nil {
			t.Fatal(err)
		}
		again, err := ReadTrunkList(&b)
		if err != nil {
			t.Fatal(err)
		}
		if l.Fingerprint() == 0 || again.Fingerprint() != l.Fingerprint() {
			t.Errorf("fingerprints %08x, then %08x", l.Fingerprint(), again.Fingerprint())
		}
		return again
	}
	a, b := list(1, 0.5), list(1, 0.2)
	trunk := a.Trunk(42)
	if !trunk.Has(1<<64-1) || !trunk.Has(5) || trunk.Has(100) || a.Trunk(43) != nil {
		t.Errorf("values in more than half of the prompts: %v", a.Domains)
	}
	if got, ok := b.Trunk(42).Group(prompts[7]); !ok || got != BlockGroup(1007) {
		t.Errorf("group %v: 103 is in a quarter of the prompts, so it belongs to the trunk, and the group is that of 1007", got)
	}
	if a.Fingerprint() == b.Fingerprint() || a.Fingerprint() == list(2, 0.5).Fingerprint() || a.Fingerprint() != list(1, 0.5).Fingerprint() {
		t.Error("fingerprints do not distinguish lists by values and seed")
	}
	if err := (*TrunkList)(nil).Write(io.Discard); err == nil {
		t.Error("no list was written")
	}
	if (*TrunkList)(nil).Fingerprint() != 0 || FingerprintText(0) != "" || FingerprintText(42) != "0000002a" {
		t.Error("a nil list has a fingerprint, or a fingerprint has the wrong text")
	}
	for why, text := range map[string]string{
		"cannot be parsed":      `{"schema": 1`,
		"no schema version":     `{}`,
		"use a newer program":   `{"schema": 2, "share": 0.1}`,
		"share 1 must be":       `{"schema": 1, "share": 1}`,
		`domain "xyz" must be`:  `{"schema": 1, "share": 0.1, "domains": [{"domain": "xyz"}]}`,
		"occurs twice":          `{"schema": 1, "share": 0.1, "domains": [{"domain": "0000002a"}, {"domain": "0000002a"}]}`,
		"16 hexadecimal digits": `{"schema": 1, "share": 0.1, "domains": [{"domain": "0000002a", "values": ["5"]}]}`,
	} {
		if _, err := ReadTrunkList(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, want %q", text, err, why)
		}
	}
}

// TestMixedSampling: rows of two samples are reported as such.
func TestMixedSampling(t *testing.T) {
	m := &Meta{Sampling: []Sampling{{Rate: 0.01, TrunkList: "0000002a", Rows: 10}}}
	if text := m.MixedSampling(); text != "" {
		t.Errorf("one sample: %q", text)
	}
	m.Sampling = append(m.Sampling, Sampling{Rate: 1, Rows: 7})
	if text := m.MixedSampling(); !strings.Contains(text, "10 at a rate of 0.01 by trunk list 0000002a, 7 at a rate of 1") {
		t.Errorf("two samples: %q", text)
	}
	if (*Meta)(nil).MixedSampling() != "" {
		t.Error("a trace without a sidecar counts as a mixture")
	}
	m.Schema, m.Sampling = 1, []Sampling{{Rate: 2}}
	if err := m.Validate(); err == nil || !strings.Contains(err.Error(), "rate 2") {
		t.Errorf("a rate of 2: %v", err)
	}
}
