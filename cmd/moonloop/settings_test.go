// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/pflag"
)

// settingsRun runs a replay in a folder of its own with the given files.
func settingsRun(t *testing.T, files map[string]string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	withoutOTel(t)
	t.Chdir(t.TempDir())
	for name, content := range files {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out, err bytes.Buffer
	status = run(t.Context(), append([]string{replayVerb}, args...), strings.NewReader(""), &out, &err)
	return status, out.String(), err.String()
}

// TestSettingsPrecedence: the command line overrides the environment, which overrides the file, which overrides the default.
// --print-config says where each value comes from. Every type of flag can be in a file.
func TestSettingsPrecedence(t *testing.T) {
	t.Setenv("MOONLOOP_REPLAY_SPEEDUP", "3")
	t.Setenv("MOONLOOP_REPLAY_SEED", "7")
	t.Setenv("MOONLOOP_REPLAY_MODEL", "")
	t.Setenv("MOONLOOP_REPLAY_HEADER", "X-A: 1\nX-B: 2")
	t.Setenv("MOONLOOP_REPLAY_SERVICE_HOST", "10.0.0.1") // of Kubernetes, for a service of this name
	t.Setenv("MOONLOOP_OUT", "of another program")
	file := `# how we replay
trace: prod.jsonl
url: http://engine:8000
speedup: 2
seed: 1
concurrency: 8
model: m
slo: ttft=500ms,itl=50ms
goodput-goal: 0.95
start: 90s
shard: 0/4
strict: true
arrival-stamps: read
carry-memory: 1MiB
header-env: [X-Key=MY_KEY, Authorization=MY_HEADER]
percentiles: 50,99.9
grace: 30s
`
	t.Setenv("MY_KEY", "k")
	t.Setenv("MY_HEADER", "h")
	status, out, stderr := settingsRun(t, map[string]string{"run.yaml": file},
		"--config", "run.yaml", "--speedup", "4", "--num-prompts", "100", "--print-config")
	if status != exitOK || stderr != "" {
		t.Fatalf("exit status %d:\n%s", status, stderr)
	}
	want := `trace: prod.jsonl # file run.yaml:2
url: http://engine:8000 # file run.yaml:3
model: m # file run.yaml:7
speedup: 4 # flag
start: 1m30s # file run.yaml:10
max-requests: 100 # flag
grace: 30s # default
concurrency: 8 # file run.yaml:6
shard: 0/4 # file run.yaml:11
strict: true # file run.yaml:12
seed: 7 # environment MOONLOOP_REPLAY_SEED
carry-memory: 1MiB # file run.yaml:14
header: # environment MOONLOOP_REPLAY_HEADER
  - …
  - …
header-env: # file run.yaml:15
  - X-Key=MY_KEY
  - Authorization=MY_HEADER
arrival-stamps: read # file run.yaml:13
slo: ttft=500ms,itl=50ms # file run.yaml:8
goodput-goal: 0.95 # file run.yaml:9
percentiles: 50,99.9 # file run.yaml:16
`
	var got []string
	for line := range strings.Lines(out) {
		if !strings.HasSuffix(line, "# default\n") || strings.HasPrefix(line, "grace") {
			got = append(got, line)
		}
	}
	if diff := cmp.Diff(want, strings.Join(got, "")); diff != "" {
		t.Errorf("want −, got +:\n%s\nall:\n%s", diff, out)
	}
}

// settable returns a value that a flag accepts, other than its default.
func settable(t *testing.T, name string) string {
	t.Helper()
	f := newReplayCommand().Flags().Lookup(name)
	rule := ruleOf(f)
	for _, value := range slices.Concat(rule.words, strings.Fields(`true false 7 1024 0.5 1s 1MiB 0/2 http://127.0.0.1:1 2030-01-01T00:00:00Z 5m {"a":1} A=b X-A:b input_length=n
		itl=1s 64x32 +3dB ttft words tokens never none chat vllm jpeg read full even gamma session exponential skip explicit grpc s bar tracereplay azure`), []string{"--first 3", "class=2", "a/tokenizer.json", "50,99.9", "k=v", "x.xlsx", "end=/stop_profile", "0.5,50", "http://127.0.0.1:1/{trace_id}"}) {
		if (rule.ok == nil || rule.ok(value) == nil) && f.Value.Set(value) == nil && f.Value.String() != f.DefValue {
			return value
		}
	}
	t.Fatalf("--%s accepts none of the values of this test: add one", name)
	return ""
}

// TestSettingsEveryFlag: each flag can be in the file and in the environment, and --print-config shows its value and its source.
func TestSettingsEveryFlag(t *testing.T) {
	alone(t)
	var names []string
	newReplayCommand().Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && !slices.Contains(strings.Fields(commandLineOnly), f.Name) {
			names = append(names, f.Name)
		}
	})
	if len(names) < 100 {
		t.Fatalf("%d flags", len(names))
	}
	for _, name := range names {
		variable, value := "MOONLOOP_REPLAY_"+strings.ToUpper(strings.ReplaceAll(name, "-", "_")), settable(t, name)
		t.Run(name, func(t *testing.T) {
			shown := func(from, want string, args ...string) {
				t.Helper()
				file := name + ": '" + value + "'\n"
				_, out, stderr := settingsRun(t, map[string]string{"run.yaml": file}, append(args, "--print-config")...)
				line := regexp.MustCompile(`(?m)^` + name + `:.* # (.*)$`).FindStringSubmatch(out)
				if line == nil || !strings.HasPrefix(line[1], want) { // whatever else such a run lacks
					t.Errorf("%s %s from %s: %q\n%s", name, value, from, line, stderr)
				}
			}
			shown("a file", "file run.yaml:1", "--config", "run.yaml")
			t.Setenv(variable, value)
			shown("the environment", "environment "+variable)
		})
	}
}

// TestSettingsErrors: errors in a file or a variable are reported with their position, all at once, and nothing is sent.
func TestSettingsErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		file string
		env  [2]string
		want []string
	}{
		"unknown key":                      {"url: http://e\nspedup: 2\nmax_requests: 1\n", [2]string{}, []string{"run.yaml:2: spedup: there is no such setting; did you mean speedup?", "run.yaml:3: max_requests: there is no such setting; did you mean max-requests?"}},
		"key of another tool":              {"num-prompts: 2\n", [2]string{}, []string{"run.yaml:1: num-prompts: there is no such setting; it is called max-requests"}},
		"keys of the command line only":    {"as: vllm\nconfig: a\n", [2]string{}, []string{"run.yaml:1: as: there is no such setting; it belongs on the command line", "run.yaml:2: config: there is no such setting; it belongs on the command line"}},
		"a key twice":                      {"seed: 1\nurl: http://e\nseed: 2\n", [2]string{}, []string{"run.yaml:3: seed: it is set at run.yaml:1 already; set it once"}},
		"wrong values":                     {"speedup: fast\nseed:\nstrict: yes\n", [2]string{}, []string{`run.yaml:1: speedup "fast": want a number`, "run.yaml:2: seed: want a whole number", `run.yaml:3: strict "yes": want true or false`}},
		"a list for a flag with one value": {"model: [a, b]\n", [2]string{}, []string{"run.yaml:1: model: want the name of a model"}},
		"invalid syntax":                   {"url: http://e\n  seed: [\n", [2]string{}, []string{"run.yaml:2: "}},
		"no mapping":                       {"- url\n", [2]string{}, []string{"run.yaml:1: want a line"}},
		"two documents":                    {"seed: 1\n---\nseed: 2\n", [2]string{}, []string{"run.yaml:2: a second document begins"}},
		"a secret that was left out":       {"seed: 1\nextra-inputs: …\n", [2]string{}, []string{"run.yaml:2: extra-inputs: its value was left out", "give it on the command line or by MOONLOOP_REPLAY_EXTRA_INPUTS"}},
		"a summary without settings":       {`{"schema_version": "1.0"}`, [2]string{}, []string{"run.yaml:1: the summary of a run that stored no settings"}},
		"unknown variable":                 {"seed: 1\n", [2]string{"MOONLOOP_REPLAY_SPEDUP", "2"}, []string{"MOONLOOP_REPLAY_SPEDUP: there is no such setting; did you mean MOONLOOP_REPLAY_SPEEDUP?"}},
		"wrong variable":                   {"seed: 1\n", [2]string{"MOONLOOP_REPLAY_SPEEDUP", "-2"}, []string{`MOONLOOP_REPLAY_SPEEDUP "-2": want a number`}},
		"a secret that is not a header":    {"header: " + planted + "\n", [2]string{}, []string{"run.yaml:1: header: want \"Name: value\""}},
		"user in the URL":                  {"url: http://user:" + planted + "@e\n", [2]string{}, []string{"it contains a user name"}},
		"contradiction":                    {"no-fixed-schedule: true\nstart: 1m\nurl: http://e\n", [2]string{}, []string{"--start has no effect with --no-fixed-schedule"}},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.env[0] != "" {
				t.Setenv(tc.env[0], tc.env[1])
			}
			status, _, stderr := settingsRun(t, map[string]string{"run.yaml": tc.file}, "none.jsonl", "--config", "run.yaml")
			if status != exitUsage {
				t.Errorf("exit status %d, want %d", status, exitUsage)
			}
			for _, want := range tc.want {
				if !strings.Contains(stderr, want) {
					t.Errorf("want %q in:\n%s", want, stderr)
				}
			}
			if strings.Contains(stderr, planted) {
				t.Errorf("a secret is shown:\n%s", stderr)
			}
		})
	}
}

// TestSettingsInTheClear: a secret in a file is not shown, and a warning says that it is in plain text. One in the environment is fine.
func TestSettingsInTheClear(t *testing.T) {
	const clear = "is in plain text in a file"
	for name, tc := range map[string]struct {
		file, variable string
		warned         bool
	}{
		"file":        {"header: 'Authorization: Bearer " + planted + "'\n", "", true},
		"query":       {"url: http://127.0.0.1:1/?api_key=" + planted + "\n", "", true},
		"environment": {"", "Authorization: Bearer " + planted, false},
		"no secret":   {"header: 'X-Team: serving'\n", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.variable != "" {
				t.Setenv("MOONLOOP_REPLAY_HEADER", tc.variable)
			}
			args := []string{"none.jsonl", "--config", "run.yaml"}
			if !strings.HasPrefix(tc.file, "url") {
				args = append(args, "--url", "http://127.0.0.1:1")
			}
			_, _, stderr := settingsRun(t, map[string]string{"run.yaml": tc.file}, args...)
			_, stdout, _ := settingsRun(t, map[string]string{"run.yaml": tc.file}, append(args, "--print-config")...)
			if got := strings.Contains(strings.Join(strings.Fields(stderr), " "), clear); got != tc.warned {
				t.Errorf("warned: %t, want %t:\n%s", got, tc.warned, stderr)
			}
			if strings.Contains(stderr, "list of processes") || strings.Contains(stdout+stderr, planted) {
				t.Errorf("the secret, or a wrong warning:\n%s%s", stdout, stderr)
			}
		})
	}
}

// TestSettingsRoundTrip: with --config, the summary of a run repeats the run, and so does the output of --print-config. Only the folder
// differs.
func TestSettingsRoundTrip(t *testing.T) {
	engine, _ := startSimulator(t)
	trace := filepath.Join(t.TempDir(), "trace.jsonl")
	if err := os.WriteFile(trace, []byte(rowOfSix+rowOfSix), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("MOONLOOP_REPLAY_OUTPUT_LENGTH", "3")
	first := t.TempDir()
	read := func(dir string) (s struct {
		Config  map[string]any    `json:"config"`
		Sources map[string]string `json:"config_sources"`
		Rows    struct{ Served int64 }
		Seed    struct{ Seed uint64 } `json:"schedule"`
	},
	) {
		t.Helper()
		content, err := os.ReadFile(filepath.Join(dir, "summary.json"))
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(content, &s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	ran := func(args ...string) string {
		t.Helper()
		status, stdout, stderr := settingsRun(t, nil, args...)
		if status != exitOK && status != exitInvalid {
			t.Fatalf("exit status %d:\n%s", status, stderr)
		}
		return stdout
	}
	ran(trace, "--url", engine.URL, "--endpoint", "completions", "--seed", "18446744073709551615", "--speedup", "100", "--grace", "0s", "--max-duration", "1m",
		"--max-requests", "1", "--slo", "ttft=5s", "--token-events", "first", "--no-report-page", "--out", first)
	one := read(first)
	if one.Rows.Served != 1 || one.Sources["seed"] != "flag" || one.Sources["output-length"] != "environment MOONLOOP_REPLAY_OUTPUT_LENGTH" ||
		one.Sources["endpoint"] != "flag" || one.Sources["prepare"] != "default" || one.Config["trace"] != trace {
		t.Errorf("the first run: %+v", one)
	}
	second, third := t.TempDir(), t.TempDir()
	ran("--config", filepath.Join(first, "summary.json"), "--out", second)
	printed := filepath.Join(t.TempDir(), "again.yaml")
	if err := os.WriteFile(printed, []byte(ran("--config", filepath.Join(second, "summary.json"), "--print-config")), 0o600); err != nil {
		t.Fatal(err)
	}
	ran("--config", printed, "--out", third)
	for _, dir := range []string{second, third} {
		again := read(dir)
		if diff := cmp.Diff(one.Config, again.Config, cmpopts.IgnoreMapEntries(func(name string, _ any) bool { return name == "out" })); diff != "" {
			t.Errorf("other settings:\n%s", diff)
		}
		if again.Seed != one.Seed || again.Rows != one.Rows || again.Config["out"] != dir {
			t.Errorf("another run: %+v", again)
		}
	}
}

// TestWarmupOfAIPerfsFile: in AIPerf's settings files, a warm-up has nothing of the run's load. A flag on the command line counts there, too.
func TestWarmupOfAIPerfsFile(t *testing.T) {
	const profiling = "{type: poisson, requests: 20, rate: 10, rateRamp: 60, concurrency: 9, concurrencyRamp: 50, prefillConcurrency: 7, prefillRamp: 40}"
	for warmup, test := range map[string]struct{ flags, want string }{
		"{type: concurrency, requests: 20, concurrency: 8}": {
			"", "warmup-concurrency: 8; warmup-request-rate: 0; warmup-ramp-up: 0s; warmup-concurrency-ramp-up: 0s; warmup-prefill-concurrency: 0; warmup-prefill-ramp-up: 0s",
		},
		"{type: concurrency, requests: 5}":                 {"", "warmup-concurrency: 1; warmup-request-rate: 0"},
		"{type: constant, rate: 5, duration: 1}":           {"", "warmup-concurrency: 1024; warmup-request-rate: 5; warmup-arrival: constant; warmup-ramp-up: 0s"},
		"{type: gamma, rate: 5, requests: 4}":              {"", "warmup-request-rate: 5; warmup-arrival: poisson"},
		"{type: concurrency, requests: 6}":                 {"--warmup-request-count 3 --request-rate 4", "warmup-requests: 3; request-rate: 4; warmup-request-rate: 0"},
		"{type: concurrency, sessions: 6, rate: null}":     {"--concurrency-ramp-duration 3", "warmup-concurrency-ramp-up: 3s; warmup-prefill-ramp-up: 0s"},
		"{type: concurrency, requests: 2, prefillRamp: 3}": {"--prefill-concurrency 2", "prefill-concurrency: 2; warmup-prefill-ramp-up: 0s; prefill-concurrency-ramp-up: 40s"},
		"{type: fixed_schedule}":                           {"", "warmup: type \"fixed_schedule\": want concurrency, constant, poisson or gamma"},
	} {
		file := "benchmark:\n  model: sim\n  endpoint: {url: \"http://127.0.0.1:1\"}\n  dataset: {path: t.jsonl, format: mooncake_trace}\n" +
			"  warmup: " + warmup + "\n  profiling: " + profiling + "\n"
		_, out, stderr := settingsRun(t, map[string]string{"a.yaml": file, "t.jsonl": threeRows}, strings.Fields("profile --config a.yaml --print-config "+test.flags)...)
		for want := range strings.SplitSeq(test.want, "; ") {
			if !strings.Contains("\n"+out, "\n"+want+" ") && !strings.Contains(stderr, want) {
				t.Errorf("%s %s: %q is not in:\n%s%s", warmup, test.flags, want, out, stderr)
			}
		}
	}
}
