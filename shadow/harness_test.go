// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package shadow

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moonloop/moonloop/agent"
	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/agent/schedule"
	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/internal/simulator"
	"github.com/moonloop/moonloop/internal/testpipe"
	"github.com/moonloop/moonloop/mooncake"
)

// request is a request of production, with the time at which its record arrives.
type request struct {
	*journal.Inference
	at time.Time
}

// conversations returns the requests of a stretch of production: conversations with growing prompts, which begin with a few system texts.
func conversations(t testing.TB, from time.Time, length time.Duration, perSecond float64) (all []request) {
	t.Helper()
	rng := rand.New(rand.NewPCG(7, 1))
	key, err := blockhash.NewKey(bytes.Repeat([]byte{1}, blockhash.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	h, err := blockhash.NewHasher(key, "00000009")
	if err != nil {
		t.Fatal(err)
	}
	text := func(n int) string {
		var b strings.Builder
		for b.Len() < n {
			fmt.Fprintf(&b, "%x ", rng.Uint32())
		}
		return b.String()[:n]
	}
	var systems [3]string
	for i := range systems {
		systems[i] = text(3000 + 1000*i)
	}
	model, err := journal.ParseName("m")
	if err != nil {
		t.Fatal(err)
	}
	type chat struct {
		messages [][2]string
		id       journal.Session
	}
	var chats []*chat
	for at, n := from, uint64(1); at.Before(from.Add(length)); n++ {
		var c *chat
		if len(chats) > 20 && rng.IntN(4) > 0 {
			c = chats[len(chats)-1-rng.IntN(20)]
		} else {
			c = &chat{id: journal.Session(n), messages: [][2]string{{"system", systems[rng.IntN(3)]}}}
			chats = append(chats, c)
		}
		c.messages = append(c.messages, [2]string{"user", text(200 + rng.IntN(1500))})
		h.Reset()
		size := 0
		for _, m := range c.messages {
			h.Role(m[0])
			h.Text(m[1])
			size += len(m[1])
		}
		reply := text(40 + rng.IntN(200))
		c.messages = append(c.messages, [2]string{"assistant", reply})
		chain := h.Chain()
		chain.Cells, chain.Ends = slices.Clone(chain.Cells), slices.Clone(chain.Ends)
		h.Role("assistant")
		h.Text(reply)
		end, ok := h.End()
		if !ok {
			t.Fatal("the reply has no end")
		}
		r := &journal.Inference{
			Start: at.UnixNano(), Model: model, Session: c.id, InputTokens: mooncake.Some(int64(size / 4)), OutputTokens: mooncake.Some(int64(len(reply) / 4)),
			Prompt: journal.Prompt{Identity: journal.Text, Domain: 9, Chain: chain, Reply: end},
		}
		binary.BigEndian.PutUint64(r.Span.TraceID[8:], n)
		binary.BigEndian.PutUint64(r.Span.SpanID[:], n)
		r.FirstToken = mooncake.Some(at.Add(50 * time.Millisecond).UnixNano())
		over := at.Add(50*time.Millisecond + time.Duration(len(reply)/4-1)*10*time.Millisecond)
		r.End = over.UnixNano()
		all = append(all, request{r, over})
		at = at.Add(time.Duration(rng.ExpFloat64() / perSecond * float64(time.Second)))
	}
	slices.SortStableFunc(all, func(a, b request) int { return cmp.Compare(a.at.UnixNano(), b.at.UnixNano()) })
	return all
}

// produce writes records to the journals of a folder as their times come. It begins a new journal after each interval (rotate), and keeps
// only the last journals (keep).
func produce(ctx context.Context, t testing.TB, dir string, all []request, rotate time.Duration, keep int) {
	t.Helper()
	var w *journal.Writer
	var files []string
	begun := time.Time{}
	for _, r := range all {
		select {
		case <-time.After(time.Until(r.at)):
		case <-ctx.Done():
			return
		}
		if w == nil || time.Since(begun) > rotate {
			if w != nil {
				_ = w.Close()
			}
			begun = time.Now()
			files = append(files, filepath.Join(dir, fmt.Sprintf("traces-%06d.journal", len(files))))
			var err error
			if w, err = journal.OpenWriter(files[len(files)-1], journal.WriterOptions{NoSync: true}); err != nil {
				t.Error(err)
				return
			}
			if len(files) > keep {
				_ = os.Remove(files[len(files)-1-keep])
			}
		}
		if err := w.Append(r.Inference); err != nil {
			t.Error(err)
			return
		}
	}
	_ = w.Close()
}

// compiled returns the rows of one compilation of all requests.
func compiled(t testing.TB, all []request) *collected {
	t.Helper()
	name := filepath.Join(t.TempDir(), "all.journal")
	w, err := journal.OpenWriter(name, journal.WriterOptions{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		if err := w.Append(r.Inference); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	c := &collected{}
	if _, err := capture.Compile(t.Context(), capture.Options{Graphs: capture.GraphsNever}, func(capture.Partition) (capture.TraceWriter, error) { return c, nil }, capture.FileSource(name)); err != nil {
		t.Fatal(err)
	}
	return c
}

// serve serves an engine on a network in memory. stop ends both, and returns when nothing of them is running.
func serve(t testing.TB, cfg simulator.Config) (e *simulator.Engine, network *testpipe.Network, stop func()) {
	t.Helper()
	cfg.Record.Keep = 1 << 16
	e, err := simulator.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	network = testpipe.New()
	unserve := network.Serve(e.NewServer())
	return e, network, func() {
		unserve()
		_ = e.Close()
	}
}

// configFor returns the configuration of a shadow that follows the journals of a folder, with an engine in memory.
func configFor(t testing.TB, journals, dir string, network *testpipe.Network) Config {
	t.Helper()
	return Config{
		Journals: journals, Dir: dir, Delay: 3 * time.Minute, History: time.Hour, MaxRate: 1000,
		Warn: func(text string) { t.Log(text) },
		Replay: agent.Config{
			Target: agent.Target{URL: "http://engine", Model: "m"}, Prompt: agent.Prompt{Endpoint: prompt.Completions},
			DialContext: network.Dial, Waiter: schedule.NewSleeper,
		},
	}
}

// ledger is what the files of a shadow say about each row.
type ledger struct {
	plans   map[mooncake.SpanRef]*mooncake.Row
	sent    map[mooncake.SpanRef]int
	dropped map[mooncake.SpanRef]string
	late    []float64 // ms
	rows    []*mooncake.Row

	live     int            // replies in prompts that were live
	invented map[string]int // replies in prompts, by why they were not live
}

func readLedger(t testing.TB, cfg Config) ledger {
	t.Helper()
	if err := cfg.complete(); err != nil {
		t.Fatal(err)
	}
	l := ledger{plans: map[mooncake.SpanRef]*mooncake.Row{}, sent: map[mooncake.SpanRef]int{}, dropped: map[mooncake.SpanRef]string{}, invented: map[string]int{}}
	p, err := newPlanner(&cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	windows, err := p.windows()
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range windows {
		rows, err := p.read(in)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range rows {
			if l.plans[row.OTel] != nil {
				t.Errorf("row %x is in two plans", row.OTel)
			}
			l.plans[row.OTel] = row
			l.rows = append(l.rows, row)
		}
		err = eachLine(cfg.dropFile(in), func(line []byte) error {
			var d drop
			if err := json.Unmarshal(line, &d); err != nil {
				return err
			}
			row, err := spanOf(d.Trace, d.Span)
			if l.dropped[row] != "" {
				t.Errorf("row %x was dropped twice", row)
			}
			l.dropped[row] = d.Reason
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	dirs, err := cfg.runFolders()
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		err := allResults(dir, func(line []byte) error {
			var r result
			var more struct{ Result struct{ Replies []string } }
			if err := errors.Join(json.Unmarshal(line, &r), json.Unmarshal(line, &more)); err != nil {
				return err
			}
			for _, why := range more.Result.Replies {
				if why == "" {
					l.live++
				} else {
					l.invented[why]++
				}
			}
			row, err := spanOf(r.OTel.Trace, r.OTel.Span)
			if r.Result.Outcome != "skipped" {
				l.sent[row]++
				l.late = append(l.late, or(r.Result.Lateness))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// copyDir copies the files of a folder as a kill would leave them.
func copyDir(t testing.TB, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(name string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		}
		in, err := os.Open(name)
		if os.IsNotExist(err) { // a temporary file
			return nil
		}
		if err != nil {
			return err
		}
		defer in.Close()
		content, err := io.ReadAll(in)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), content, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
}
