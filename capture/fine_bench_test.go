// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/mooncake"
)

// longTalks returns a journal of this many requests of conversations of this many turns each, below 20 system prompts, whose borders are
// never aligned; without the ends of messages and replies, as before these were recorded, or with them.
func longTalks(t testing.TB, requests, turns int, ends bool) []byte {
	t.Helper()
	w := newAuthor(3)
	source := longText(4 << 20)
	piece := func(n int) string {
		at := w.IntN(len(source) - n)
		return source[at : at+n]
	}
	var systems []string
	for range 20 {
		systems = append(systems, piece(500+w.IntN(6000)))
	}
	h := newHasher(t, blockhash.TextDomain)
	b := []byte(header)
	model := name(t, "model-7b")
	for talk := range (requests + turns - 1) / turns {
		h.Reset()
		h.Role("system")
		h.Text(systems[w.IntN(len(systems))])
		said := ""
		for turn := range turns {
			if turn > 0 {
				h.Role("assistant")
				h.Text(said)
			}
			h.Role("user")
			h.Text(piece(50 + w.IntN(1500)))
			said = piece(100 + w.IntN(2500))
			c := h.Chain()
			r := journal.Inference{
				Span: ref(uint64(talk*turns+turn+1), 1), Start: at(int64(talk*937 + turn*20_011)), Model: model, Response: journal.ResponseOf(fmt.Sprint(talk, turn)),
				InputTokens: opt(c.Bytes/4 + 7), OutputTokens: opt(int64(len(said)/4 + 1)), CachedTokens: opt(c.Bytes / 8 / 32 * 32),
				Prompt: journal.Prompt{Identity: journal.Text, Domain: 9, Key: 8, Chain: c},
			}
			r.End, r.FirstToken = r.Start+3e9, opt(r.Start+int64(1e8))
			if ends {
				// What comes after the prompt, on a hasher of its own that has the same text.
				probe := *h
				probe.Role("assistant")
				probe.Text(said)
				r.Reply, _ = probe.End()
			} else {
				r.Chain.Ends = nil
			}
			b = appendFrame(b, journal.AppendRecord(nil, &r))
		}
	}
	return b
}

// lengthOf is a sink that counts bytes.
type lengthOf struct {
	n int64
}

func (l *lengthOf) Write(p []byte) (int, error) { l.n += int64(len(p)); return len(p), nil }

type countedTrace struct{ *mooncake.Writer }

func (countedTrace) Commit(*mooncake.Meta) error { return nil }
func (countedTrace) Close() error                { return nil }

// TestRowsWithRanges: ranges and replies make rows at most half again as long, however many turns conversations have.
func TestRowsWithRanges(t *testing.T) {
	otherInput(t)
	for _, turns := range []int{10, 12, 20} {
		var s rowsOnly
		if _, err := Compile(t.Context(), Options{TempDir: t.TempDir()}, s.sink, buffer("journal", longTalks(t, 2400, turns, true))); err != nil {
			t.Fatal(err)
		}
		var with, without lengthOf
		full := 0
		all, plain := mooncake.NewWriter(&with), mooncake.NewWriter(&without)
		for _, row := range s.rows {
			one := *row
			one.HashRanges, one.Replies = nil, nil
			if err := errors.Join(all.Write(row), plain.Write(&one)); err != nil {
				t.Fatal(err)
			}
			full += len(mooncake.AppendRow(nil, row)) + 1
		}
		ratio := float64(with.n) / float64(without.n)
		t.Logf("%d turns: %d bytes a row, x%.2f of those without ranges and replies; written in full x%.2f",
			turns, with.n/int64(len(s.rows)), ratio, float64(full)/float64(without.n))
		if ratio > 1.5 {
			t.Error("want x1.5 at most")
		}
	}
}

// BenchmarkCompileTalks compiles 12,000 requests of conversations with text. It reports the time, the bytes of journal and rows per request,
// and the most memory in use.
func BenchmarkCompileTalks(b *testing.B) {
	for _, ends := range []bool{false, true} {
		b.Run(fmt.Sprintf("ends=%v", ends), func(b *testing.B) {
			j := longTalks(b, 12_000, 12, ends)
			var rows int64
			most := uint64(0)
			for b.Loop() {
				runtime.GC()
				var l lengthOf
				done := make(chan struct{})
				go func() {
					var m runtime.MemStats
					for {
						select {
						case <-done:
							return
						case <-time.After(5 * time.Millisecond):
							runtime.ReadMemStats(&m)
							most = max(most, m.HeapInuse)
						}
					}
				}()
				_, err := Compile(b.Context(), Options{TempDir: b.TempDir()}, func(Partition) (TraceWriter, error) {
					return countedTrace{mooncake.NewWriter(&l)}, nil
				}, buffer("journal", j))
				close(done)
				if err != nil {
					b.Fatal(err)
				}
				rows = l.n
			}
			b.ReportMetric(float64(len(j))/12_000, "journal-B/request")
			b.ReportMetric(float64(rows)/12_000, "row-B/request")
			b.ReportMetric(float64(most)/(1<<20), "peak-MiB")
		})
	}
}
