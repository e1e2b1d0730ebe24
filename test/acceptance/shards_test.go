// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package acceptance

// This file replays the public trace with up to 64 processes that start together, and merges their results. Package study shows in virtual
// time that the merged run equals the run of one process, bucket for bucket; on a real clock, no two runs are equal.

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/report"
)

// shardNumbers are the numbers of shards: 0 is one process that has none.
var shardNumbers = []int{0, 1, 2, 8, 64}

// startShards starts the processes of a replay, which all begin at one instant. On a busy machine, 64 processes need a while to read the
// trace.
func startShards(t *testing.T, dir, url string, shards int, flags ...string) []*process {
	t.Helper()
	begin := time.Now().Add(15*time.Second + time.Duration(shards)*time.Second).UTC().Truncate(time.Second)
	var all []*process
	for i := range max(1, shards) {
		args := append([]string{
			"replay", setting(t, "MOONLOOP_TRACE"), "--url", url, "--model", "sim", "--endpoint", "completions", "--prompt", "tokens", "--seed", "1",
			"--speedup", "120", "--progress", "none", "--out", filepath.Join(dir, "shards", strconv.Itoa(i)),
		}, flags...)
		if shards > 0 {
			args = append(args, "--shard", fmt.Sprintf("%d/%d", i, shards), "--start-at", begin.Format(time.RFC3339))
		}
		all = append(all, start(t, dir, fmt.Sprintf("shard-%d", i), nil, setting(t, "MOONLOOP_BIN"), args...))
	}
	return all
}

// ended waits for the end of a replay. A busy machine makes the measurement invalid (3), which does not matter here.
func ended(t *testing.T, p *process) {
	t.Helper()
	if status := p.wait(t, 10*time.Minute); status != 0 && status != 3 {
		t.Fatalf("%s: status %d\n%s", p.err, status, p.tail())
	}
}

// received returns what the engine got, by its own record: for each row its prompt, and the tokens of prompt and reply. The digest is that of
// the multiset: of the sorted lines.
func received(t *testing.T, e *engine) (lines []string, digest string) {
	t.Helper()
	for _, r := range readLines[struct {
		engineRecord
		PromptHash string `json:"prompt_hash"`
	}](t, e.record) {
		if id := r.Header["X-Request-Id"]; len(id) == 1 { // requests that ask how the engine counts have none
			row := id[0][strings.LastIndexByte(id[0], '-')+1:]
			lines = append(lines, fmt.Sprint(row, " ", r.PromptHash, " ", r.PromptTokens, " ", r.OutputTokens))
		}
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "\n")))
	return lines, hex.EncodeToString(sum[:8])
}

// histograms returns those of the records in folders: how many values are in each bucket. It adds the records to the given aggregate.
func histograms(t *testing.T, of *measure.Aggregate, dirs ...string) map[string]map[float64]int64 {
	t.Helper()
	for _, dir := range dirs {
		if err := report.Records(dir, func(r *measure.Record) error { of.Add(r); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	all := map[string]map[float64]int64{}
	for id := measure.ID(0); id < measure.TokenThroughput; id++ {
		if buckets := of.Buckets(id); len(buckets) > 0 {
			all[id.String()] = buckets
		}
	}
	return all
}

// TestAcceptanceShards replays the whole public trace with 1, 2, 8 and 64 processes that start together, and with one that has no shards. The
// engine gets the same requests each time. Merged, the records of all shards are one run with the histograms of all of them.
func TestAcceptanceShards(t *testing.T) {
	trace, moonloop := readLines[traceRow](t, setting(t, "MOONLOOP_TRACE")), setting(t, "MOONLOOP_BIN")
	root := artefacts(t)
	var one string
	for _, n := range shardNumbers {
		dir := filepath.Join(root, strconv.Itoa(n))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		what := fmt.Sprintf("%d shards: ", n)
		sim := startEngine(t, dir, "--tokens-per-chunk", "32") // with which two cores send a hundred thousand tokens a second
		replays := startShards(t, dir, sim.url, n)
		var folders []string
		peak := 0.
		for i, p := range replays {
			ended(t, p)
			peak = max(peak, p.peakMiB())
			folders = append(folders, filepath.Join(dir, "shards", strconv.Itoa(i)))
		}
		sim.stop(t)
		note(t, what+"peak memory of the largest process, MiB", fmt.Sprintf("%.0f", peak))

		lines, digest := received(t, sim)
		equal(t, what+"requests at the engine", len(lines), len(trace))
		if n == 0 {
			one = digest
			checkReceived(t, trace, lines)
			note(t, "digest of one process's requests", digest)
			continue
		}
		equal(t, what+"digest of the requests", digest, one)

		whole := filepath.Join(dir, "whole")
		merge := start(t, dir, "merge", nil, moonloop, "merge", filepath.Join(dir, "shards"), "--out", whole)
		ended(t, merge)
		note(t, what+"merged in, s", fmt.Sprintf("%.1f", merge.lasted.Seconds()))
		all := measure.NewAggregate(measure.Options{})
		want := histograms(t, all, folders...)
		values := int64(0)
		for _, buckets := range want {
			for _, count := range buckets {
				values += count
			}
		}
		difference := cmp.Diff(want, histograms(t, measure.NewAggregate(measure.Options{}), whole))
		if difference != "" {
			t.Errorf("%sthe merged histograms are not those of all records (-records +merged):\n%.2000s", what, difference)
		}
		judge(t, what+fmt.Sprintf("histograms of %d values", values), len(want), "equal, bucket for bucket", difference == "")
		checkMerged(t, what, whole, n, all)
		if !t.Failed() {
			_ = os.RemoveAll(filepath.Join(dir, "shards")) // of 64 shards, some 50 MB
		}
	}
}

// checkReceived compares what the engine got with the rows of the trace.
func checkReceived(t *testing.T, trace []traceRow, lines []string) {
	t.Helper()
	prompts, wrong := map[string]bool{}, 0
	for _, line := range lines {
		var row, prompt, output int64
		var hash string
		if _, err := fmt.Sscan(line, &row, &hash, &prompt, &output); err != nil {
			t.Fatal(err)
		}
		prompts[hash] = true
		if row >= int64(len(trace)) || trace[row].InputLength != prompt || trace[row].OutputLength != output {
			wrong++
		}
	}
	equal(t, "requests with other lengths than their row", wrong, 0)
	equal(t, "different prompts", len(prompts), 11913) // distinct_sequences of goldenAnalysis
}

// checkMerged compares summary.json of a merged run with an aggregate of all records, and the parts of the shards with their mean.
func checkMerged(t *testing.T, what, whole string, shards int, all *measure.Aggregate) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(whole, "summary.json"))
	if err != nil {
		t.Fatal(err)
	}
	var written map[string]json.RawMessage
	if err := json.Unmarshal(content, &written); err != nil {
		t.Fatal(err)
	}
	wrong, compared := 0, 0
	for id, want := range all.Figures().All {
		if len(all.Buckets(id)) == 0 {
			continue // no distribution
		}
		var got measure.Stat
		if err := json.Unmarshal(written[id.String()], &got); err != nil {
			t.Errorf("%s%v: %v", what, id, err)
		}
		for _, s := range []*measure.Stat{&got, &want} {
			s.Avg, s.Std, s.Sum = 0, 0, 0 // sums of floating-point numbers depend on their order
		}
		if compared++; got != want {
			wrong++
			t.Errorf("%s%v is %+v in the summary, %+v of all records", what, id, got, want)
		}
	}
	judge(t, what+fmt.Sprintf("percentiles of %d figures in summary.json", compared), wrong, "0 differ from all records'", wrong == 0 && compared > 0)
	var summary struct {
		Shards struct {
			Each []struct{ Rows, Tokens float64 }
		}
	}
	if err := json.Unmarshal(content, &summary); err != nil {
		t.Fatal(err)
	}
	rows, tokens, mostRows, mostTokens := 0., 0., 0., 0.
	for _, s := range summary.Shards.Each {
		rows, tokens, mostRows, mostTokens = rows+s.Rows, tokens+s.Tokens, max(mostRows, s.Rows), max(mostTokens, s.Tokens)
	}
	equal(t, what+"shards in summary.json", len(summary.Shards.Each), shards)
	below(t, what+"the largest shard's rows or tokens, in means", math.Max(mostRows/rows, mostTokens/tokens)*float64(shards), 1.2)
}

// TestAcceptanceShardKilled kills one of eight shards with kill -9. The others end as usual. There is no merged run until the killed shard
// has been resumed.
func TestAcceptanceShardKilled(t *testing.T) {
	moonloop, dir := setting(t, "MOONLOOP_BIN"), artefacts(t)
	const shards, rows, victim = 8, 2000, 5
	sim := startEngine(t, dir, "--tokens-per-chunk", "32")
	replays := startShards(t, dir, sim.url, shards, "--max-requests", strconv.Itoa(rows))
	folder := filepath.Join(dir, "shards", strconv.Itoa(victim))
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(20 * time.Millisecond) { // until it has answered a request
		if content, err := os.ReadFile(filepath.Join(folder, "requests.jsonl.partial")); err == nil && strings.Contains(string(content), `"served"`) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("shard %d has answered nothing\n%s", victim, replays[victim].tail())
		}
	}
	_ = replays[victim].cmd.Process.Kill() // SIGKILL
	equal(t, "status of the killed shard", replays[victim].wait(t, time.Minute), -1)
	for i, p := range replays {
		if i != victim {
			ended(t, p)
		}
	}
	whole := filepath.Join(dir, "whole")
	args := []string{"merge", filepath.Join(dir, "shards"), "--out", whole}
	merge := start(t, dir, "refused", nil, moonloop, args...)
	equal(t, "status of moonloop merge", merge.wait(t, time.Minute), 2)
	said := string(merge.tail())
	judge(t, "the error names the shard", strings.TrimSpace(said), folder+": this shard did not end", strings.Contains(said, folder+": this shard did not end"))
	_, err := os.Stat(filepath.Join(whole, "summary.json"))
	equal(t, "a run was written nevertheless", err == nil, false)

	ended(t, start(t, dir, "resumed", nil, moonloop, "replay", "--resume", folder, "--progress", "none"))
	merge = start(t, dir, "merge", nil, moonloop, args...)
	ended(t, merge)
	of := map[int64]int{}
	for _, line := range readLines[requestLine](t, filepath.Join(whole, "requests.jsonl")) {
		of[line.Result.Row]++
	}
	equal(t, "rows of the run, once the shard has been resumed", len(of), rows)
	summary, err := os.ReadFile(filepath.Join(whole, "summary.json"))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "the verdict says that a shard was cut short", strings.Contains(string(summary), "run_breaks"), true)
}
