// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/moonloop/moonloop/internal/simulator"
)

// planted is the secret of these tests. It has the shape of a variable's name, too.
const planted = "skPlanted7Gq0vJ2mWx9bTz4LpRfYc8"

// secretValues are the flags that may hold a secret, with such values. Whether the verb accepts a value does not matter: it must not be
// visible anywhere.
var secretValues = map[string]string{
	"header":        "X-Key: " + planted,
	"header-env":    "X-Key=" + planted,
	"extra-inputs":  `{"user": "` + planted + `"}`,
	"url":           "http://user:" + planted + "@127.0.0.1:1/v1?key=" + planted,
	"otlp-endpoint": "http://" + planted + "@127.0.0.1:1/?key=" + planted,
	"api-key-env":   planted,
	"api-key-file":  planted,
	"key-env":       planted,
	"token-env":     planted,
	"token-file":    planted,
}

// plainFlags are the flags of text that hold no secret: words of a list, names, places, numbers.
const plainFlags = `out draw format replays missing-tokens memory temp-dir journal grpc http tls-cert tls-key client-ca session-key class-key clients deny
	progress run resume from failed only-model to-model turn-delay listen model like prefill-lane cache-commit role-chunk fault record record-header
	endpoint prompt profile spread start end shard shard-dir start-at session-mode time-unit quarantine too-short ca-file cert-file
	key-file arrival-stamps slo token-events otlp-protocol run-id capacity eviction user output think request-limit
	carry-replies carry-memory follow-engine graphs prompt-order histograms trace-url cache-sizes model-config traces allow-target map
	max-upload max-disk as percentiles only-class priority only-session save-prompts dataset tokenizer image-size image-format config table xlsx parquet arrival
	ramp-up-shape balance loop prompts to metric steady-from steady-to transform label again between html junit objective vary cache tolerance clock-reference
	judge export instance-header session-header engine-post request-rate-series warmup-arrival runs-warmup connections sample-by`

// TestSecretFlagsAreKnown: each flag with text is in one of the two lists, so that a new one is not forgotten.
func TestSecretFlagsAreKnown(t *testing.T) {
	plain := strings.Fields(plainFlags)
	for _, verb := range newRootCommand().Commands() {
		verb.Flags().VisitAll(func(f *pflag.Flag) {
			switch f.Value.Type() {
			case "bool", "int", "int64", "uint64", "float64", "duration":
				return
			}
			_, secret := secretValues[f.Name]
			if secret == slices.Contains(plain, f.Name) {
				t.Errorf("%s --%s: say in this test whether its value may be a secret", verb.Name(), f.Name)
			}
			if masked := ruleOf(f).secret; masked && !secret {
				t.Errorf("%s --%s: its rule says that it is secret, this test that it is not", verb.Name(), f.Name)
			}
		})
	}
}

// spellings returns all ways to write a flag and its value.
func spellings(f *pflag.Flag, aliases map[string]string, value string) (list [][]string) {
	names := []string{f.Name}
	for alias, name := range aliases {
		if name == f.Name {
			names = append(names, alias)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		list = append(list, []string{"--" + name, value}, []string{"--" + name + "=" + value})
	}
	if s := f.Shorthand; s != "" {
		list = append(list, []string{"-" + s, value}, []string{"-" + s + value}, []string{"-" + s + "=" + value})
	}
	return list
}

// TestSecretsStayHidden: a secret in any flag, by any spelling, in a URL or in the environment never appears in what a command writes,
// shows or sends elsewhere.
func TestSecretsStayHidden(t *testing.T) {
	withoutOTel(t)
	e, err := simulator.New(simulator.Config{Models: []string{"sim"}})
	if err != nil {
		t.Fatal(err)
	}
	w := &secretWitness{engine: e}
	engine := httptest.NewServer(http.HandlerFunc(w.toEngine))
	elsewhere := httptest.NewServer(http.HandlerFunc(w.elsewhere))
	t.Cleanup(func() {
		engine.Close()
		elsewhere.Close()
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	in := func(variables ...string) map[string]string {
		env := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": elsewhere.URL, "OTEL_METRIC_EXPORT_INTERVAL": "100"}
		for i := 0; i < len(variables); i += 2 {
			env[variables[i]] = variables[i+1]
		}
		return env
	}
	replay := func(flags ...string) []string {
		args := []string{"replay", "trace.jsonl", "--progress", "lines", "--out", "results"}
		for _, f := range [][2]string{{"--url", engine.URL}, {"--model", "sim"}, {"--endpoint", "completions"}} {
			if !slices.ContainsFunc(flags, func(a string) bool {
				return strings.HasPrefix(a, f[0]) || strings.HasPrefix(a, "-u") || strings.HasPrefix(a, "--base-url")
			}) {
				args = append(args, f[0], f[1])
			}
		}
		return append(args, flags...)
	}
	type secretCase struct {
		args    []string
		env     map[string]string
		arrives bool // at the engine, as it should
	}
	var cases []secretCase
	for _, verb := range newRootCommand().Commands() {
		verb.Flags().VisitAll(func(f *pflag.Flag) {
			value, secret := secretValues[f.Name]
			if !secret {
				return
			}
			for _, flags := range spellings(f, aliasesOf(verb), value) {
				if verb.Name() == replayVerb {
					cases = append(cases, secretCase{replay(flags...), in(), f.Name == "header" || f.Name == "extra-inputs"})
					continue
				}
				cases = append(cases, secretCase{slices.Concat(secretBase(verb, f), flags), in(), false})
			}
		})
	}
	trace := strings.Replace(elsewhere.URL, "http://", "http://user:"+planted+"@", 1) + "/missing.jsonl?key=" + planted
	good := strings.Replace(elsewhere.URL, "http://", "http://user:"+planted+"@", 1) + "/trace.jsonl?key=" + planted
	withUser := strings.Replace(elsewhere.URL, "http://", "http://user:"+planted+"@", 1)
	cases = append(
		cases,
		secretCase{replay("-H", "@headers"), in(), true},
		secretCase{replay("--url", engine.URL+"/v1?key="+planted), in(), true},
		secretCase{replay("--header-env", "Authorization=MY_HEADER"), in("MY_HEADER", "Bearer "+planted), true},
		secretCase{replay("--header-env=X-Key=MY_HEADER"), in("MY_HEADER", planted), true},
		secretCase{replay("--api-key-env", "MY_KEY"), in("MY_KEY", planted), true},
		secretCase{replay("--api-key-file", "key"), in(), true},
		secretCase{replay("-H", "Content-Length: "+planted), in(), false},
		secretCase{replay("-H", planted), in(), false},
		secretCase{replay("-H", "X-Key: "+planted+"\nHost: h"), in(), false},
		secretCase{replay("--extra-body", `{"user": "`+planted), in(), false},
		secretCase{replay("--api-key", planted), in(), false},
		secretCase{replay("--api-key=" + planted), in(), false},
		secretCase{replay("-X" + planted), in(), false},
		secretCase{replay("--=" + planted), in(), false},
		secretCase{replay("--url", "user:"+planted+"@127.0.0.1:1"), in(), false},
		secretCase{replay("--url", "http://user:"+planted+"@127.0.0.1:1/%zz"), in(), false},
		secretCase{replay("--url", "http://a", "--base-url", "http://b?key="+planted), in(), false},
		secretCase{[]string{"replay", trace, "--url", engine.URL}, in(), false},
		secretCase{[]string{"replay", good, "--url", engine.URL, "--model", "sim", "--endpoint", "completions", "--out", "results"}, in(), false},
		secretCase{[]string{"inspect", trace}, in(), false},
		secretCase{[]string{"inspect", good, good}, in(), false},
		secretCase{[]string{"convert", trace, "--out", "x.jsonl"}, in(), false},
		secretCase{[]string{"convert", good, good, "--out", "x.jsonl"}, in(), false},
		secretCase{replay(), in("OTEL_EXPORTER_OTLP_HEADERS", "x-key="+planted), false},
		secretCase{replay(), in("OTEL_EXPORTER_OTLP_HEADERS", planted), false},
		secretCase{replay(), in("OTEL_EXPORTER_OTLP_ENDPOINT", withUser), false},
		secretCase{replay(), in("OTEL_EXPORTER_OTLP_ENDPOINT", "http://user:"+planted+"@127.0.0.1:1"), false},
		secretCase{[]string{"convert", "otlp.jsonl", "--out", "x.jsonl"}, in(hashKeyEnv, planted), false},
		secretCase{[]string{"convert", "otlp.jsonl", "--out", "x.jsonl"}, in(hashKeyEnv, planted+planted), false},
		secretCase{[]string{"capture", "--out", "x.jsonl", "--grpc", "127.0.0.1:0", "--http", "", "--duration", "1ms"}, in(hashKeyEnv, planted+planted), false},
	)
	for _, c := range cases {
		name := strings.NewReplacer(planted, "SECRET", "/", "∕").Replace(strings.Join(c.args, " "))
		for variable := range c.env {
			if !strings.HasPrefix(variable, "OTEL_METRIC") && variable != "OTEL_EXPORTER_OTLP_ENDPOINT" {
				name += " " + variable
			}
		}
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			t.Chdir(folder)
			for variable, value := range c.env {
				t.Setenv(variable, value)
			}
			inputs := map[string]string{
				"trace.jsonl": rowOfSix, "key": planted, "headers": "X-Other: a\nAuthorization: Bearer " + planted + "\n", "otlp.jsonl": `{"resourceSpans":[]}` + "\n",
				"a.journal": "",
			}
			for name, content := range inputs {
				if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			w.reset()
			var stdout, stderr bytes.Buffer
			status := run(t.Context(), c.args, strings.NewReader(""), &stdout, &stderr)
			found := map[string][]byte{"standard output": stdout.Bytes(), "standard error": stderr.Bytes(), "what went elsewhere": w.seen()}
			err := filepath.WalkDir(folder, func(name string, entry fs.DirEntry, err error) error {
				if _, input := inputs[filepath.Base(name)]; err != nil || entry.IsDir() || input {
					return err
				}
				found[name], err = os.ReadFile(name)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			for where, content := range found {
				if bytes.Contains(content, []byte(planted)) || bytes.Contains(content, []byte(planted[2:16])) {
					t.Errorf("the secret is in %s:\n%s", where, content)
				}
			}
			if c.arrives && (status != exitOK && status != exitInvalid || !w.arrived()) {
				t.Errorf("exit status %d, and the engine got the secret: %t; nothing was tested\n%s", status, w.arrived(), &stderr)
			}
			if c.arrives && len(w.seen()) == 0 {
				t.Error("no telemetry was sent: nothing was tested")
			}
			if !c.arrives && status == exitUsage && stderr.Len() == 0 {
				t.Error("nothing was said")
			}
		})
	}
}

// secretBase returns a command line of a verb, without the secret flag.
func secretBase(verb *cobra.Command, f *pflag.Flag) []string {
	args := []string{verb.Name()}
	switch verb.Name() {
	case "capture":
		args = append(args, "--out", "x.jsonl", "--grpc", "127.0.0.1:0", "--http", "", "--duration", "1ms")
	case "convert":
		args = append(args, "otlp.jsonl", "--out", "x.jsonl")
	case "compile":
		args = append(args, "a.journal", "--out", "x.jsonl")
	case "agent": // as with simulate, it must not begin to serve
		args = append(args, "--allow-target", "http://127.0.0.1:1", "--no-auth", "--listen", "127.0.0.1:0", "--traces", "missing")
	case "simulate": // whatever its flag is, it must not begin to serve
		args = append(args, "--listen", "127.0.0.1:0", "--record", "missing/record")
	default:
		panic(fmt.Sprintf("%s has a flag for secrets, --%s: write a command line for it", verb.Name(), f.Name))
	}
	return args
}

// secretWitness records whether the secret reaches the engine, and what other servers receive.
type secretWitness struct {
	engine *simulator.Engine

	mu    sync.Mutex
	there bool         // the secret reached the engine
	other bytes.Buffer // what other servers received
}

func (w *secretWitness) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.there = false
	w.other.Reset()
}

func (w *secretWitness) arrived() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.there
}

func (w *secretWitness) seen() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return bytes.Clone(w.other.Bytes())
}

// toEngine notes whether a request has the secret. If the headers or the URL have it, toEngine refuses the request in words that repeat the
// secret.
func (w *secretWitness) toEngine(rw http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	w.mu.Lock()
	if bytes.Contains(body, []byte(planted)) || strings.Contains(fmt.Sprint(r.Header, r.URL), planted) {
		w.there = true
	}
	w.mu.Unlock()
	if strings.Contains(fmt.Sprint(r.Header, r.URL), planted) {
		http.Error(rw, "not allowed: "+planted, http.StatusForbidden) // as some gateways do
		return
	}
	w.engine.ServeHTTP(rw, r)
}

// elsewhere is an OTLP receiver and a server of traces. It keeps what is sent to it in bodies.
func (w *secretWitness) elsewhere(rw http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.mu.Lock()
	w.other.Write(body)
	w.mu.Unlock()
	switch r.URL.Path {
	case "/trace.jsonl":
		_, _ = io.WriteString(rw, rowOfSix)
	case "/v1/traces", "/v1/metrics":
		rw.Header().Set("Content-Type", "application/x-protobuf")
	default:
		http.Error(rw, "not allowed: "+planted[2:], http.StatusForbidden)
	}
}

// TestCommandInSummary: the command line in the report can be run again, has the flags' own names, and no secrets.
func TestCommandInSummary(t *testing.T) {
	root := newRootCommand()
	var got []string
	for _, verb := range root.Commands() {
		if verb.Name() == replayVerb {
			verb.RunE = func(cmd *cobra.Command, args []string) error {
				got = publicCommand(cmd, args)
				return nil
			}
		}
	}
	status := execute(t.Context(), root, []string{
		"replay", "a trace.jsonl", "-c", "5", "--base-url=http://h:1/v1", "--num-prompts", "7", "--extra-body", `{"a":1}`, "-HX-Key: k", "-H", "@headers",
		"--header-env", "X-Key=MY_KEY", "--api-key-env", "my_key", "--start", "90s", "--strict", "--no-stream=false", "--slo", "ttft=1s itl=2s",
	}, strings.NewReader(""), io.Discard, io.Discard)
	want := "moonloop replay 'a trace.jsonl' --concurrency 5 --url http://h:1/v1 --max-requests 7 --header … --header @headers " +
		"--header-env X-Key=MY_KEY --api-key-env … --start 1m30s --strict --no-stream=false --slo 'ttft=1s itl=2s' --extra-inputs …"
	if text := strings.Join(got, " "); status != exitOK || text != want {
		t.Errorf("exit status %d\n got %s\nwant %s", status, text, want)
	}
}

// TestNearest: what is suggested for a mistyped word.
func TestNearest(t *testing.T) {
	verbs := []string{"capture", "compile", "completion", "convert", "demo", "generate", "help", "inspect", "replay", "simulate"}
	for typed, want := range map[string]string{
		"repaly": "replay", "inspcet": "inspect", "cap": "capture", "comp": "compile completion", "genrate": "generate", "xyz": "", "": "",
		"Replay": "replay", "deom": "demo", "replayreplayreplay": "",
	} {
		if got := strings.Join(nearest(typed, verbs), " "); got != want {
			t.Errorf("%q: %q, want %q", typed, got, want)
		}
	}
}
