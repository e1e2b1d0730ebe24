// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/binary"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/moonloop/moonloop/internal/simulator"
)

// timeServer answers NTP requests with a clock that is this far ahead of this machine's, and returns its address.
func timeServer(t *testing.T, ahead time.Duration) string {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	go func() {
		buf := make([]byte, 512)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			if n < 48 {
				continue
			}
			stamp := func(at time.Time) uint64 {
				since := at.Add(ahead).Sub(time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC))
				return uint64(since/time.Second)<<32 | uint64(since%time.Second)<<32/uint64(time.Second)
			}
			reply := make([]byte, 48)
			reply[0], reply[1], reply[2], reply[3] = 4<<3|4, 2, 0, 0xec // version 4, server; stratum 2; precision 2^-20 s
			copy(reply[24:32], buf[40:48])
			now := stamp(time.Now())
			binary.BigEndian.PutUint64(reply[16:], now)
			binary.BigEndian.PutUint64(reply[32:], now)
			binary.BigEndian.PutUint64(reply[40:], stamp(time.Now()))
			_, _ = conn.WriteTo(reply, from)
		}
	}()
	return conn.LocalAddr().String()
}

// TestClockReference: the offset of this machine's clock is measured, within the reported uncertainty.
func TestClockReference(t *testing.T) {
	const ahead = 250 * time.Millisecond
	offset, uncertain, err := askReference(t.Context(), timeServer(t, ahead))
	if err != nil {
		t.Fatal(err)
	}
	if off := (offset - ahead).Abs(); off > uncertain+time.Millisecond {
		t.Errorf("offset %v ± %v, want %v", offset, uncertain, ahead)
	}
	e := newEngine(t, simulator.Config{})
	r := e.replay(t, Config{Trace: Trace{Shard: 1, Shards: 2}, Prompt: ids, Schedule: Schedule{ClockReference: timeServer(t, ahead)}}, rows(40, 1)...)
	s := r.report.Shard
	if s == nil || s.Clock == nil {
		t.Fatalf("the report has no clock: %+v", s)
	}
	for _, got := range []float64{s.Clock.Start, s.Clock.End} {
		if off := got - 250; max(off, -off) > s.Clock.Uncertain+1 {
			t.Errorf("offset %v ± %v ms, want 250", got, s.Clock.Uncertain)
		}
	}
	if s.Index != 1 || s.Of != 2 || s.AllRows != 40 || s.Rows != r.report.Trace.Rows || s.Plan == "" || s.Lookahead == "" {
		t.Errorf("the shard is %+v", s)
	}
	if _, _, err := askReference(t.Context(), "127.0.0.1:1"); err == nil || !strings.Contains(err.Error(), "clock reference 127.0.0.1:1") {
		t.Errorf("no server: %v", err)
	}
}

// TestShardsShareARun: shards that start together have the same run id; others have their own.
func TestShardsShareARun(t *testing.T) {
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	id := func(c Config) string { return c.resolved().RunID }
	first := Config{Trace: Trace{Name: "/a/trace.jsonl", Shard: 0, Shards: 4}, Schedule: Schedule{StartAt: at}}
	second := Config{Trace: Trace{Name: "/b/trace.jsonl", Shard: 3, Shards: 4}, Schedule: Schedule{StartAt: at.In(time.FixedZone("", 3600))}}
	if a, b := id(first), id(second); a != b || a == "" {
		t.Errorf("two shards of a run are called %q and %q", a, b)
	}
	for name, other := range map[string]Config{
		"another start":            {Trace: first.Trace, Schedule: Schedule{StartAt: at.Add(time.Second)}},
		"another number of shards": {Trace: Trace{Name: "/a/trace.jsonl", Shards: 5}, Schedule: first.Schedule},
		"no start":                 {Trace: first.Trace},
		"another seed":             {Trace: first.Trace, Schedule: first.Schedule, Prompt: Prompt{Seed: 7}},
	} {
		if id(other) == id(first) {
			t.Errorf("%s: the same run id", name)
		}
	}
	if first.RunID = "mine"; id(first) != "mine" {
		t.Error("a given run id is not used")
	}
}

// TestStartAtIsABarrier: a process that is not ready at the common start time sends nothing.
func TestStartAtIsABarrier(t *testing.T) {
	e := newEngine(t, simulator.Config{})
	r := e.replay(t, Config{Prompt: ids, Trace: Trace{Shards: 1}, Schedule: Schedule{StartAt: time.Now()}}, rows(3, 1)...)
	if r.err == nil || !strings.Contains(r.err.Error(), "this process was ready") || len(r.sent) != 0 {
		t.Errorf("error %v, %d requests", r.err, len(r.sent))
	}
}

// TestShardWithoutRows: the error says why a shard has no rows.
func TestShardWithoutRows(t *testing.T) {
	e := newEngine(t, simulator.Config{})
	one := `{"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [1, 2], "session_id": "s"}`
	r := e.replay(t, Config{Prompt: ids, Trace: Trace{Shard: 1, Shards: 2}}, one, one)
	if r.err == nil || !strings.Contains(r.err.Error(), "shard 1/2 has none of the 2 rows: they are in fewer groups") {
		t.Errorf("error %v", r.err)
	}
}
