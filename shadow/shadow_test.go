// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package shadow

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/agent"
	"github.com/moonloop/moonloop/agent/carry"
	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/internal/simulator"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/stats"
	"github.com/moonloop/moonloop/study"
)

// running is a shadow in a goroutine.
type running struct {
	stop    context.CancelFunc
	done    sync.WaitGroup
	totals  Totals
	err     error
	reports []*Report
}

func run(ctx context.Context, cfg Config) *running {
	r := &running{}
	ctx, r.stop = context.WithCancel(ctx)
	cfg.Report = func(one *Report) { r.reports = append(r.reports, one) }
	r.done.Go(func() { r.totals, r.err = Run(ctx, cfg) })
	return r
}

func (r *running) end() { r.stop(); r.done.Wait() }

// follow runs a shadow for a time, next to a production that writes its journals.
func follow(t *testing.T, cfg Config, all []request, lasts time.Duration) *running {
	t.Helper()
	var producing sync.WaitGroup
	producing.Go(func() { produce(t.Context(), t, cfg.Journals, all, 2*time.Minute, 2) })
	s := run(t.Context(), cfg)
	time.Sleep(lasts)
	s.end()
	producing.Wait()
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s
}

// hits returns the prompt tokens of rows that an infinite cache would have served, and all their prompt tokens.
func hits(rows []*mooncake.Row) (hit, all int64) {
	p := stats.NewPredictor(stats.PredictorOptions{BlockSize: mooncake.BlockSize, FineBlockSize: fineBlock})
	for _, row := range rows {
		if n, ok := p.Predict(row); ok {
			hit += n.Finest
		}
		all += row.InputLength.V
	}
	return hit, all
}

// TestFollows runs a shadow of eight minutes of production in virtual time. Each row is sent once, at its event time plus the delay, to
// the nanosecond, with the lengths and the sharing of one compilation of everything; and the twin finds no difference.
func TestFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		journals, dir := t.TempDir(), filepath.Join(t.TempDir(), "shadow")
		e, network, stop := serve(t, simulator.Config{Cache: simulator.Cache{BlockSize: fineBlock, Replies: true}, Latency: simulator.Latency{Prefill: 50 * time.Millisecond, Decode: 10 * time.Millisecond}})
		all := conversations(t, time.Now(), 8*time.Minute, 1)
		cfg := configFor(t, journals, dir, network)
		cfg.Replay.Prompt = agent.Prompt{Carry: carry.Always}
		s := follow(t, cfg, all, 13*time.Minute)
		stop()

		whole, l := compiled(t, all), readLedger(t, cfg)
		if len(l.rows) != len(whole.rows) || len(l.dropped) > 0 || s.totals.Rows != int64(len(whole.rows)) || s.totals.Outcomes["served"] != int64(len(whole.rows)) {
			t.Fatalf("%d rows of production, %d in plans, dropped %v, totals %+v", len(whole.rows), len(l.rows), l.dropped, s.totals)
		}
		base := float64(whole.meta.TimeBase.UnixNano()) / 1e6
		for i, row := range whole.rows {
			ours := l.rows[i]
			if ours.OTel != row.OTel || ours.InputLength != row.InputLength || ours.OutputLength != row.OutputLength || math.Abs(ours.Timestamp.V-base-row.Timestamp.V) > 0.01 {
				t.Fatalf("row %d: %+v, want %+v", i, ours, row)
			}
			if l.sent[row.OTel] != 1 {
				t.Errorf("row %d was sent %d times", i, l.sent[row.OTel])
			}
		}
		if most := slices.Max(l.late); most != 0 {
			t.Errorf("a row was %v ms late in virtual time", most)
		}
		// The windows find the same sharing as the whole, with ids that violate no rule.
		hit, tokens := hits(l.rows)
		want, _ := hits(whole.rows)
		if diff := math.Abs(float64(hit-want)) / float64(tokens); diff > 0.002 || want < tokens/3 {
			t.Errorf("an infinite cache has %d of %d tokens, and %d by one compilation", hit, tokens, want)
		}
		check := mooncake.NewDigester(mooncake.CheckOptions{BlockSize: mooncake.BlockSize, FineBlockSize: fineBlock})
		for i, row := range l.rows {
			check.Add(row, int64(i+1))
		}
		if d := check.Digests(); d.Tree == "" || d.Tree == "undefined" {
			t.Errorf("the ids are not a tree: %+v", d)
		}
		if l.live == 0 || sum(l.invented) > l.live/5 {
			t.Errorf("%d replies are live in the prompts, and %d invented: %v", l.live, sum(l.invented), l.invented)
		}
		// The engine's cache had what the plans promise.
		var cached int64
		for _, r := range e.Records() {
			cached += int64(r.CachedTokens)
		}
		if math.Abs(float64(cached-hit)) > 0.02*float64(tokens) {
			t.Errorf("the engine had %d tokens cached, and the plans have %d", cached, hit)
		}

		var rows, seconds, equal int64
		for i, r := range s.reports {
			rows, seconds, equal = rows+r.Rows, seconds+r.Rates.Seconds, equal+r.Rates.Equal
			if r.InFlight > 0 || i > 0 && r.From != s.reports[i-1].To {
				t.Errorf("report %d: %+v", i, r)
			}
			if r.Rows > 0 && (r.Twin == nil || r.Lag == nil) {
				t.Errorf("report %d compares nothing: %+v", i, r)
			}
			if r.Rows > 0 && r.Twin.Answer == study.OutsideTolerance {
				t.Errorf("report %d: %+v", i, r.Twin.Checks)
			}
		}
		if rows != int64(len(whole.rows)) || seconds != equal || seconds < 300 {
			t.Errorf("reports of %d rows, %d of %d seconds as in production", rows, equal, seconds)
		}
	})
}

// TestKilled kills shadows by copying their files at several instants, and continues from the copies, at once and minutes later. Each row
// of production is sent once, or dropped and counted with the reason.
func TestKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		journals, dir := t.TempDir(), filepath.Join(t.TempDir(), "shadow")
		e, network, stop := serve(t, simulator.Config{Latency: simulator.Latency{Prefill: 400 * time.Millisecond, Decode: 10 * time.Millisecond}})
		all := conversations(t, time.Now(), 12*time.Minute, 1)
		var producing sync.WaitGroup
		producing.Go(func() { produce(t.Context(), t, journals, all, 2*time.Minute, 4) })

		cfg := configFor(t, journals, dir, network)
		s := run(t.Context(), cfg)
		for i, kill := range []struct{ after, down time.Duration }{
			{5*time.Minute + 300*time.Millisecond, 0}, {2*time.Minute + 700*time.Millisecond, 2 * time.Second}, {2 * time.Minute, 2 * time.Minute}, {100 * time.Millisecond, time.Second},
		} {
			time.Sleep(kill.after)
			next := filepath.Join(t.TempDir(), "shadow")
			copyDir(t, cfg.Dir, next)
			s.end() // nobody reads what it writes from here on
			if s.err != nil {
				t.Fatalf("kill %d: %v", i, s.err)
			}
			cfg.Dir = next
			time.Sleep(kill.down)
			s = run(t.Context(), cfg)
		}
		time.Sleep(10 * time.Minute)
		s.end()
		producing.Wait()
		stop()
		if s.err != nil {
			t.Fatal(s.err)
		}

		whole, l := compiled(t, all), readLedger(t, cfg)
		reasons := map[string]int64{}
		for i, row := range whole.rows {
			sent, why := l.sent[row.OTel], l.dropped[row.OTel]
			if why != "" {
				reasons[why]++
			}
			if (sent == 1) != (why == "") || sent > 1 {
				t.Errorf("row %d of production was sent %d times, and dropped for %q", i, sent, why)
			}
		}
		if want := s.totals.Dropped; !cmp.Equal(want, reasons) || reasons[DropInterrupted] == 0 || reasons[DropNotRunning] < 100 {
			t.Errorf("dropped %v, counted %v", reasons, want)
		}
		var ended int64
		for _, n := range s.totals.Outcomes {
			ended += n
		}
		if ended += sum(reasons); s.totals.Rows != int64(len(whole.rows)) || ended != s.totals.Rows {
			t.Errorf("%d rows of production; totals %+v", len(whole.rows), s.totals)
		}
		// Nothing reached the engine twice: requests beyond the rows that were sent are those that the kills interrupted.
		if more := int64(len(e.Records()) - len(l.sent)); more < 0 || more > reasons[DropInterrupted] {
			t.Errorf("the engine had %d requests, of %d rows that were sent; %v were dropped", len(e.Records()), len(l.sent), reasons)
		}
		if most := slices.Max(l.late); most > float64(cfg.MaxLag.Milliseconds()) && cfg.MaxLag > 0 || most > 5000 {
			t.Errorf("a row was %v ms late", most)
		}
	})
}

// TestStopped: after a stop that was asked for, no row is said to have been in flight: requests under way are cancelled, and those that were
// not sent any more were due while no shadow ran.
func TestStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		journals, dir := t.TempDir(), filepath.Join(t.TempDir(), "shadow")
		_, network, stop := serve(t, simulator.Config{Latency: simulator.Latency{Prefill: 400 * time.Millisecond, Decode: 10 * time.Millisecond}})
		all := conversations(t, time.Now(), 4*time.Minute, 4)
		cfg := configFor(t, journals, dir, network)
		first := follow(t, cfg, all, 5*time.Minute+300*time.Millisecond)
		time.Sleep(time.Second)
		second := run(t.Context(), cfg)
		time.Sleep(5 * time.Minute)
		second.end()
		stop()
		if second.err != nil {
			t.Fatal(second.err)
		}
		if got := second.totals; got.Dropped[DropInterrupted] > 0 || got.Dropped[DropNotRunning] == 0 || got.Outcomes["cancelled"] == 0 || got.InFlight > 0 {
			t.Errorf("the first process has %+v, and the second %+v", first.totals, got)
		}
	})
}

func sum[N int | int64](counts map[string]N) (n N) {
	for _, c := range counts {
		n += c
	}
	return n
}

// TestDrops: rows that are too late, too frequent, or due while the engine is away are counted, and the shadow continues.
func TestDrops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		journals, dir := t.TempDir(), filepath.Join(t.TempDir(), "shadow")
		_, network, stop := serve(t, simulator.Config{})
		all := conversations(t, time.Now(), 6*time.Minute, 1)
		late := 0
		for i := range all {
			if i%50 == 49 { // its record arrives after its window was compiled
				all[i].at = all[i].at.Add(4 * time.Minute)
				late++
			}
		}
		slices.SortStableFunc(all, func(a, b request) int { return a.at.Compare(b.at) })
		cfg := configFor(t, journals, dir, network)
		cfg.MaxRate = 3
		away := time.Now().Add(6 * time.Minute)
		cfg.Replay.DialContext = func(ctx context.Context, n, a string) (net.Conn, error) {
			if d := time.Since(away); d > 0 && d < 30*time.Second {
				return nil, errors.New("connection refused")
			}
			return network.Dial(ctx, n, a)
		}
		s := follow(t, cfg, all, 15*time.Minute)
		stop()
		perSecond, above := map[int64]int64{}, int64(0)
		l := readLedger(t, cfg)
		for _, row := range l.rows {
			if l.dropped[row.OTel] == DropLate {
				continue
			}
			if perSecond[int64(row.Timestamp.V/1e3)]++; perSecond[int64(row.Timestamp.V/1e3)] > 3 {
				above++
			}
		}
		if got := s.totals.Dropped; got[DropLate] != int64(late) || got[DropRate] != above || above == 0 {
			t.Errorf("dropped %v; %d were late and %d above the rate", got, late, above)
		}
		if s.totals.Rows != int64(len(all)) {
			t.Errorf("%d requests, %+v", len(all), s.totals)
		}
	})
}

// TestNegativeConfig: 0 means the default, and nothing may be below it.
func TestNegativeConfig(t *testing.T) {
	cfg := Config{Journals: "journals", Dir: "dir"}
	if err := cfg.complete(); err != nil || cfg.MaxLag != DefaultMaxLag {
		t.Errorf("a lag of at most %v, %v", cfg.MaxLag, err)
	}
	if cfg.MaxLag = -1; cfg.complete() == nil {
		t.Error("a negative lag is accepted")
	}
}

// TestRemovedUnread: of a journal that is removed, only records that were not read are lost; its header is none.
func TestRemovedUnread(t *testing.T) {
	cfg := Config{Journals: t.TempDir(), Dir: t.TempDir(), Window: time.Minute, Warn: func(string) {}}
	var lost losses
	f, err := newFollower(&cfg, map[string]place{}, &lost)
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	name := filepath.Join(cfg.Journals, "a.journal")
	w, err := journal.OpenWriter(name, journal.WriterOptions{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Close(), f.poll(t.Context(), time.Now()), os.Remove(name), f.poll(t.Context(), time.Now())); err != nil {
		t.Fatal(err)
	}
	if lost.RemovedBytes != 0 {
		t.Errorf("%d bytes of a journal without records are lost", lost.RemovedBytes)
	}
}

// TestEngineComesLater: while the first replay waits for the engine, rows become too late. They are dropped for their lag, and not sent.
func TestEngineComesLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		journals, dir := t.TempDir(), filepath.Join(t.TempDir(), "shadow")
		_, network, stop := serve(t, simulator.Config{})
		all := conversations(t, time.Now(), 3*time.Minute, 1)
		cfg := configFor(t, journals, dir, network)
		cfg.Replay.Target.WaitReady = cfg.Delay
		ready := time.Now().Add(5 * time.Minute)
		cfg.Replay.DialContext = func(ctx context.Context, n, a string) (net.Conn, error) {
			if time.Now().Before(ready) {
				return nil, errors.New("connection refused")
			}
			return network.Dial(ctx, n, a)
		}
		s := follow(t, cfg, all, 8*time.Minute)
		stop()
		l := readLedger(t, cfg)
		if len(l.late) == 0 || slices.Max(l.late) > 5000 {
			t.Errorf("%d rows were sent, the latest %v ms late; totals %+v", len(l.late), slices.Max(append(l.late, 0)), s.totals)
		}
		if got := s.totals; got.Rows != sum(got.Outcomes)+sum(got.Dropped)+got.InFlight || got.Dropped[DropLag] == 0 {
			t.Errorf("totals %+v", got)
		}
	})
}

// TestQuietProduction: the only row of a quiet time is sent when it is due, and does not wait for more rows.
func TestQuietProduction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		journals, dir := t.TempDir(), filepath.Join(t.TempDir(), "shadow")
		_, network, stop := serve(t, simulator.Config{})
		all := conversations(t, time.Now(), time.Nanosecond, 1)
		s := follow(t, configFor(t, journals, dir, network), all, 6*time.Minute)
		stop()
		if l := readLedger(t, configFor(t, journals, dir, network)); len(all) != 1 || len(l.late) != 1 || l.late[0] != 0 || s.totals.Outcomes["served"] != 1 {
			t.Errorf("%d requests were sent, %v ms late; totals %+v", len(all), l.late, s.totals)
		}
	})
}

// TestFolderRemoved: a Collector makes the folder of its journals again if it was removed, so a shadow continues without it. At the start, a
// missing folder is an error.
func TestFolderRemoved(t *testing.T) {
	var said []string
	cfg := Config{Journals: filepath.Join(t.TempDir(), "traces"), Dir: t.TempDir(), Window: time.Minute, Warn: func(text string) { said = append(said, text) }}
	var lost losses
	places := map[string]place{"a.journal": {Offset: 100, Size: 130}}
	f, err := newFollower(&cfg, places, &lost)
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	if err := f.poll(t.Context(), time.Now()); !errors.Is(err, fs.ErrNotExist) || len(places) != 1 {
		t.Fatalf("places %v, error %v", places, err)
	}
	name := filepath.Join(cfg.Journals, "a.journal")
	begin := func() {
		if err := os.MkdirAll(cfg.Journals, 0o700); err != nil {
			t.Fatal(err)
		}
		w, err := journal.OpenWriter(name, journal.WriterOptions{NoSync: true})
		if err := errors.Join(err, w.Close()); err != nil {
			t.Fatal(err)
		}
	}
	begin()
	if err := errors.Join(f.poll(t.Context(), time.Now()), os.RemoveAll(cfg.Journals), f.poll(t.Context(), time.Now())); err != nil {
		t.Fatal(err)
	}
	if len(places) != 0 || !strings.Contains(strings.Join(said, "\n"), "is gone") {
		t.Errorf("places %v, said %q", places, said)
	}
	begin()
	if err := f.poll(t.Context(), time.Now()); err != nil || len(places) != 1 {
		t.Errorf("places %v, error %v", places, err)
	}
}

// TestLeftOutAfterRestart: the reports of two processes count each request that production failed once, whichever of them compiled it.
func TestLeftOutAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		journals, dir := t.TempDir(), filepath.Join(t.TempDir(), "shadow")
		_, network, stop := serve(t, simulator.Config{})
		all := conversations(t, time.Now(), 4*time.Minute, 1)
		var failed int64
		for i := range all {
			if i%10 == 0 {
				all[i].Failed = true
				failed++
			}
		}
		cfg := configFor(t, journals, dir, network)
		first := follow(t, cfg, all, 4*time.Minute+30*time.Second)
		second := run(t.Context(), cfg)
		time.Sleep(5 * time.Minute)
		second.end()
		stop()
		var counted int64
		for _, r := range slices.Concat(first.reports, second.reports) {
			for _, l := range r.Left {
				if l.What == "requests" && l.Reason == "failed" {
					counted += l.Count
				}
			}
		}
		if total := second.totals.Left["requests: failed"]; second.err != nil || counted != failed || total != failed {
			t.Errorf("%d requests failed; %d in the reports, %d in total, error %v", failed, counted, total, second.err)
		}
	})
}
