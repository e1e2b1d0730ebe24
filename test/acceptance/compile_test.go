// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package acceptance

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/mooncake"
)

// This file compiles a day of made traffic, of three sizes, by one process and in two shards on this machine, and holds the shards against
// the one: the same bytes, for about the same work. `make acceptance-compile`, ROWS=1000000, MEMORY=2GiB.

// madeDay is a day of conversations. Of 16 conversations 4 have text, 1 has nothing but lengths, and 11 have block ids of 512 tokens. All
// begin with one of 20 system prompts of 2,048 tokens; a turn adds 700 tokens in the mean. So a prompt has 3,900 tokens in the mean.
type madeDay struct {
	dir                  string
	rng                  *rand.Rand
	journals             []*journal.Writer
	batches              []journal.Batch
	rows, prompt, output int64 // what was made
	cells                []uint64
	ends                 []blockhash.End
	ids                  []uint64
	bytes                int64 // of journals
}

const (
	madeJournals = 24 // one for each hour
	madeSystems  = 20
	madeBlock    = 512
	madeSystem   = 4 * madeBlock // tokens
	madeBytes    = 4             // for each token
	madeBatch    = 1 << 20
)

// makeDay writes the journals of a day with this many requests.
func makeDay(t *testing.T, dir string, rows int64) *madeDay {
	t.Helper()
	d := &madeDay{dir: dir, rng: rand.New(rand.NewPCG(17, 4)), batches: make([]journal.Batch, madeJournals)}
	for hour := range madeJournals {
		w, err := journal.OpenWriter(filepath.Join(dir, fmt.Sprintf("%02d.journal", hour)), journal.WriterOptions{NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		d.journals = append(d.journals, w)
	}
	var err error
	for talk := uint64(1); d.rows < rows && err == nil; talk++ {
		err = d.conversation(talk, rows)
	}
	for hour := range d.journals {
		err = errors.Join(err, d.flush(hour))
		d.bytes += d.journals[hour].Size()
		err = errors.Join(err, d.journals[hour].Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// keyed is what a key would make of something: 64 bits that tell nothing.
func keyed(kind, of, at uint64) uint64 {
	z := kind<<56 ^ of*0x9e3779b97f4a7c15 ^ at*0xd1342543de82ef95
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// conversation makes the requests of one.
func (d *madeDay) conversation(talk uint64, most int64) error {
	const begin, day = 1_790_000_000 * int64(time.Second), 24 * int64(time.Hour)
	at, system := begin+d.rng.Int64N(day-int64(time.Hour)), d.rng.Uint64N(madeSystems)
	model, _ := journal.ParseName("model-70b")
	tokens, kind := int64(madeSystem), talk%16
	d.ends = append(d.ends[:0], blockhash.End{Bytes: madeSystem * madeBytes, Role: blockhash.RoleSystem, Value: keyed(1, system, madeSystem*madeBytes)})
	for turn := uint64(0); turn < 12 && d.rows < most && (turn == 0 || d.rng.IntN(5) > 0); turn++ {
		asked, replied := 50+d.rng.Int64N(500), 50+d.rng.Int64N(750)
		tokens += asked
		r := journal.Inference{
			Parent: spanOf(talk, 2*turn), Start: at, End: at + replied*int64(20*time.Millisecond), FirstToken: mooncake.Some(at + tokens*int64(50*time.Microsecond)),
			InputTokens: mooncake.Some(tokens), OutputTokens: mooncake.Some(replied), Model: model,
		}
		r.Span.TraceID, r.Span.SpanID = traceOf(talk, turn), spanOf(talk, 2*turn+1)
		r.Response = journal.ResponseOf(strconv.FormatUint(talk, 36) + "-" + strconv.FormatUint(turn, 36))
		switch {
		case kind < 4:
			d.ends = append(d.ends, blockhash.End{Bytes: tokens * madeBytes, Role: blockhash.RoleUser, Value: d.value(talk, system, tokens*madeBytes)})
			r.Prompt = d.text(talk, system, tokens)
			reply := blockhash.End{Bytes: (tokens + replied) * madeBytes, Role: blockhash.RoleAssistant, Value: d.value(talk, system, (tokens+replied)*madeBytes)}
			r.Reply, d.ends = reply, append(d.ends, reply)
		case kind > 4:
			r.Prompt = journal.Prompt{Identity: journal.Engine, BlockSize: madeBlock, Domain: 7, HashIDs: d.blocks(talk, system, tokens)}
		default:
			r.Identity = journal.None
		}
		link := journal.Link{Span: mooncake.SpanRef{TraceID: r.Span.TraceID, SpanID: r.Parent}, Session: journal.Session(keyed(4, talk, 0) | 1), Start: at, End: r.End}
		hour := min(int((at-begin)/int64(time.Hour)), madeJournals-1)
		if err := errors.Join(d.batches[hour].Add(&link), d.batches[hour].Add(&r)); err != nil {
			return err
		}
		if d.batches[hour].Size() > madeBatch {
			if err := d.flush(hour); err != nil {
				return err
			}
		}
		d.rows, d.prompt, d.output = d.rows+1, d.prompt+tokens, d.output+replied
		tokens += replied
		at = r.End + int64(5*time.Second) + d.rng.Int64N(int64(4*time.Minute))
	}
	return nil
}

func (d *madeDay) flush(hour int) error {
	err := d.journals[hour].AppendBatch(&d.batches[hour])
	d.batches[hour].Reset()
	return err
}

func traceOf(talk, turn uint64) (id [16]byte) {
	binary.BigEndian.PutUint64(id[:], keyed(5, talk, turn))
	binary.BigEndian.PutUint64(id[8:], talk<<8|turn)
	return id
}

func spanOf(talk, n uint64) (id [8]byte) {
	binary.BigEndian.PutUint64(id[:], talk<<8|n+1)
	return id
}

// value stands for the text of a conversation up to there.
func (d *madeDay) value(talk, system uint64, bytes int64) uint64 {
	if bytes <= madeSystem*madeBytes {
		return keyed(1, system, uint64(bytes))
	}
	return keyed(2, talk, uint64(bytes))
}

func (d *madeDay) text(talk, system uint64, tokens int64) journal.Prompt {
	bytes := tokens * madeBytes
	d.cells = d.cells[:0]
	for at := int64(blockhash.CellSize); at <= bytes; at += blockhash.CellSize {
		d.cells = append(d.cells, d.value(talk, system, at))
	}
	return journal.Prompt{
		Identity: journal.Text, Domain: 9, Key: 8,
		Chain: blockhash.Chain{Cells: d.cells, Ends: d.ends, Bytes: bytes, Tail: d.value(talk, system, bytes)},
	}
}

func (d *madeDay) blocks(talk, system uint64, tokens int64) []uint64 {
	d.ids = d.ids[:0]
	for block := range uint64(tokens / madeBlock) { // engines hash full blocks
		if block < madeSystem/madeBlock {
			d.ids = append(d.ids, keyed(6, system, block))
		} else {
			d.ids = append(d.ids, keyed(7, talk, block))
		}
	}
	return d.ids
}

// compiled is what one compile took, of all its processes.
type compiled struct {
	cpu, wall time.Duration
	peak      float64 // bytes of the greatest process
	disk      float64 // bytes beyond what was there, traces included
	sum       [sha256.Size]byte
}

// compileDay compiles journals in this many shards, 0 for without.
func compileDay(t *testing.T, dir, name, memory string, shards int) compiled {
	t.Helper()
	moonloop, out := setting(t, "MOONLOOP_BIN"), filepath.Join(dir, name+".jsonl")
	args := []string{"compile", filepath.Join(dir, "journals"), "--out", out, "--memory", memory, "--temp-dir", dir, "--progress", "none", "--force"}
	before := used(t, dir)
	var c compiled
	var all []*process
	for i := range max(shards, 1) {
		own := args
		if shards > 0 {
			own = append(slices.Clip(args), "--shard", fmt.Sprintf("%d/%d", i, shards), "--shard-dir", filepath.Join(dir, name+".shards"))
		}
		all = append(all, start(t, dir, fmt.Sprint(name, i), nil, moonloop, own...))
	}
	for _, p := range all {
		for running := true; running; {
			select {
			case <-p.done:
				running = false
			case <-time.After(100 * time.Millisecond):
			}
			c.disk = max(c.disk, used(t, dir)-before)
		}
		if p.code != 0 {
			t.Fatalf("%s ended with status %d\n%s", name, p.code, p.tail())
		}
		c.cpu += p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()
		c.wall, c.peak = max(c.wall, p.lasted), max(c.peak, float64(p.peak.Load()))
	}
	h := sha256.New()
	for _, part := range []string{out, filepath.Join(dir, name+".meta.json")} {
		f, err := os.Open(part)
		if err == nil {
			_, err = io.Copy(h, f)
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	c.sum = [sha256.Size]byte(h.Sum(nil))
	return c
}

// used returns the bytes that are taken on a file system.
func used(t *testing.T, dir string) float64 {
	t.Helper()
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		t.Fatal(err)
	}
	return float64(s.Blocks-s.Bfree) * float64(s.Bsize)
}

// bytesOf reads a size such as 512MiB.
func bytesOf(t *testing.T, size string) float64 {
	t.Helper()
	for unit, bytes := range map[string]float64{"MiB": 1 << 20, "GiB": 1 << 30} {
		if number, ok := strings.CutSuffix(size, unit); ok {
			if n, err := strconv.ParseFloat(number, 64); err == nil {
				return n * bytes
			}
		}
	}
	t.Fatalf("MEMORY=%s: want a number of MiB or GiB", size)
	return 0
}

// TestAcceptanceCompile compiles a hundredth, a tenth and all of ROWS requests, where those are 100,000 or more.
func TestAcceptanceCompile(t *testing.T) {
	all, err := strconv.ParseInt(setting(t, "MOONLOOP_ROWS"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	memory, home := setting(t, "MOONLOOP_MEMORY"), artefacts(t)
	limit := 1.2 * bytesOf(t, memory)
	var least, most float64 // µs for a request, in shards
	for _, rows := range []int64{all / 100, all / 10, all} {
		if rows < 100_000 {
			continue // what a process takes to start says nothing of requests
		}
		dir := filepath.Join(home, fmt.Sprint(rows))
		if err := os.MkdirAll(filepath.Join(dir, "journals"), 0o755); err != nil {
			t.Fatal(err)
		}
		day := makeDay(t, filepath.Join(dir, "journals"), rows)
		of := fmt.Sprintf("%d requests", rows)
		note(t, of+": bytes of journal for each", day.bytes/rows)
		one := compileDay(t, dir, "one", memory, 0)
		two := compileDay(t, dir, "two", memory, 2)
		each := func(c compiled) float64 { return float64(c.cpu.Microseconds()) / float64(rows) }
		for name, c := range map[string]compiled{"one process": one, "two shards": two} {
			note(t, of+", "+name+": CPU time for each", fmt.Sprintf("%.2f µs", each(c)))
			note(t, of+", "+name+": wall time", c.wall.Round(10*time.Millisecond))
			note(t, of+", "+name+": disk for each", fmt.Sprintf("%.0f B", c.disk/float64(rows)))
			judge(t, of+", "+name+": memory of the greatest process", fmt.Sprintf("%.0f MiB", c.peak/(1<<20)), fmt.Sprintf("≤ %.0f MiB", limit/(1<<20)), c.peak <= limit)
		}
		equal(t, of+": bytes of trace and sidecar are the same", one.sum == two.sum, true)
		below(t, of+": work of two shards to that of one process", each(two)/each(one), 1.1)
		if least, most = min(least, each(two)), max(most, each(two)); least == 0 {
			least = each(two)
		}
		if err := os.RemoveAll(filepath.Join(dir, "journals")); err != nil {
			t.Fatal(err)
		}
		day.recount(t, dir, filepath.Join(dir, "two.jsonl"))
		for _, name := range []string{"one.jsonl", "two.jsonl"} {
			_ = os.Remove(filepath.Join(dir, name))
		}
	}
	below(t, "work for a request, most to least over the sizes", most/least, 1.15)
}

// recount has DuckDB count what is in a trace, if it is installed.
func (d *madeDay) recount(t *testing.T, dir, trace string) {
	t.Helper()
	python := filepath.Join(setting(t, "MOONLOOP_DUCKDB"), "bin", "python")
	if _, err := os.Stat(python); err != nil {
		note(t, "DuckDB", "not installed")
		return
	}
	var counted struct{ Rows, Prompt, Output, Hit int64 }
	run := func(into any, program string, args ...string) {
		cmd := exec.CommandContext(t.Context(), program, args...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		b, err := cmd.Output()
		if err == nil {
			err = json.Unmarshal(b, into)
		}
		if err != nil {
			t.Fatalf("%s: %v\n%s", program, err, stderr.Bytes())
		}
	}
	run(&counted, python, "compile/recount.py", trace, filepath.Join(dir, "rows.parquet"))
	of := fmt.Sprintf("%d requests, by DuckDB: ", d.rows)
	equal(t, of+"rows", counted.Rows, d.rows)
	equal(t, of+"prompt tokens", counted.Prompt, d.prompt)
	equal(t, of+"output tokens", counted.Output, d.output)
	var inspected struct {
		Traces []struct {
			Caches []struct {
				HitTokens int64 `json:"hit_tokens"`
				Unknown   int64 `json:"unknown_requests"`
			} `json:"caches"`
		} `json:"traces"`
	}
	run(&inspected, setting(t, "MOONLOOP_BIN"), "inspect", "--json", trace)
	caches := inspected.Traces[0].Caches
	infinite := caches[len(caches)-1]
	if infinite.Unknown > 0 {
		note(t, of+"tokens that an infinite cache has", counted.Hit)
		return
	}
	equal(t, of+"tokens that an infinite cache has", counted.Hit, infinite.HitTokens)
}
