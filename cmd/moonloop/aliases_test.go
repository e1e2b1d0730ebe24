// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"image"
	_ "image/jpeg" // to decode images that arrive
	_ "image/png"  // likewise
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/report"
	"github.com/moonloop/moonloop/internal/simulator"
)

// aliasTrace has rows of different lengths, not ordered by length, 40 ms apart.
const aliasTrace = `{"timestamp":0,"input_length":1100,"output_length":2,"hash_ids":[1,2,3]}
{"timestamp":40,"input_length":600,"output_length":2,"hash_ids":[1,4]}
{"timestamp":80,"input_length":1300,"output_length":2,"hash_ids":[1,2,5]}
{"timestamp":120,"input_length":700,"output_length":2,"hash_ids":[6,7]}
`

// The states of other tools' flags that a replay understands.
const (
	yes    = "yes"
	partly = "partly"
)

// arrived is a request as an engine saw it.
type arrived struct {
	at     time.Time
	host   string
	from   string // the address of the connection's other end
	path   string
	header http.Header
	body   map[string]any
	size   int // of the body
}

// aliasEngine is the simulated engine, and what it received.
type aliasEngine struct {
	*httptest.Server
	mu    sync.Mutex
	seen  []*arrived
	posts []string // requests to paths that control an engine, each with the number of rows that had arrived before it
	dir   string   // for files, with the trace in it

	before time.Time // an instant before the schedule: when the last request that is not for a row arrived, else when the command began
}

func newAliasEngine(t *testing.T) *aliasEngine {
	t.Helper()
	e, err := simulator.New(simulator.Config{Like: simulator.LikeVLLM, Models: []string{"other", "sim"}, Latency: simulator.Latency{Prefill: 5 * time.Millisecond, Decode: 3 * time.Millisecond}}) // else all tokens come at once
	if err != nil {
		t.Fatal(err)
	}
	w := new(aliasEngine)
	w.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if slices.Contains([]string{"/reset_prefix_cache", "/start_profile", "/stop_profile", "/v1/begin", "/v1/over"}, r.URL.Path) {
			w.asked()
			w.mu.Lock()
			w.posts = append(w.posts, fmt.Sprintf("%s %s after %d", r.Method, r.URL.Path, len(w.seen)))
			w.mu.Unlock()
			return
		}
		if at := r.URL.Path; !strings.HasSuffix(at, "/completions") && !strings.HasSuffix(at, "/embeddings") && !strings.HasSuffix(at, "/responses") && !strings.Contains(at, "/generate") {
			w.asked()
			e.ServeHTTP(rw, r)
			return
		}
		a := &arrived{at: time.Now(), host: r.Host, from: r.RemoteAddr, path: r.URL.Path, header: r.Header.Clone()}
		text, _ := io.ReadAll(r.Body)
		a.size = len(text)
		if r.Header.Get("X-Request-Id") == "" { // not for a row: the replay asks which token ids exist
			w.asked()
			r.Body = io.NopCloser(bytes.NewReader(text))
			e.ServeHTTP(rw, r)
			return
		}
		_ = json.Unmarshal(text, &a.body)
		r.Body = io.NopCloser(bytes.NewReader(text))
		w.mu.Lock()
		w.seen = append(w.seen, a)
		w.mu.Unlock()
		e.ServeHTTP(rw, r)
	}))
	t.Cleanup(w.Close)
	return w
}

// asked notes a request that is not for a row. The last one before the first row precedes the schedule.
func (w *aliasEngine) asked() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.seen) == 0 {
		w.before = time.Now()
	}
}

// scheduled returns the time between the first and the last intended instant of the run's records. A busy machine does not shorten it: it
// can only delay a turn that waits for the previous reply.
func (w *aliasEngine) scheduled(t *testing.T) time.Duration {
	t.Helper()
	var at []time.Duration
	err := filepath.WalkDir(w.dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Base(path) != report.RequestsFile {
			return err
		}
		return report.Records(filepath.Dir(path), func(r *measure.Record) error {
			at = append(at, r.Intended)
			return nil
		})
	})
	if err != nil || len(at) == 0 {
		t.Fatalf("%d records, %v", len(at), err)
	}
	return slices.Max(at) - slices.Min(at)
}

// recorded adds a folder for records to the command line of a run whose schedule or settings are checked, unless the command line names one.
func recorded(args []string, sees string) []string {
	looks := slices.ContainsFunc([]string{"over ", "spread ", "at once", "within ", "summary config."}, func(of string) bool { return strings.Contains(sees, of) })
	if looks && !strings.Contains(sees, "file ") && !strings.Contains(sees, "summary run.") {
		return append(args, "--out", "DIR/records")
	}
	return args
}

// lasted returns the time from before the schedule to the last arrival. A request is never early, so a busy machine
// makes it longer than the schedule and never shorter. The gaps between arrivals shrink when the first one is late.
func (w *aliasEngine) lasted() time.Duration {
	return slices.MaxFunc(w.seen, func(a, b *arrived) int { return a.at.Compare(b.at) }).at.Sub(w.before)
}

// atOnce is the number of replays that run concurrently: they wait more than they work.
var atOnce = make(chan struct{}, 10)

// replayed is a command line that ran.
type replayed struct {
	*aliasEngine
	status    int
	out, said string
}

// begin runs a command line in a folder with the rows as its trace. The returned function waits for the end.
func begin(t *testing.T, rows string, args []string, more ...map[string]string) func() replayed {
	t.Helper()
	w := newAliasEngine(t)
	w.dir = t.TempDir()
	trace := filepath.Join(w.dir, "trace.jsonl")
	if err := os.WriteFile(trace, []byte(rows), 0o600); err != nil {
		t.Fatal(err)
	}
	at, _ := url.Parse(w.URL)
	fill := strings.NewReplacer("ENGINE", w.URL, "HOST:PORT", at.Host, "HOST", at.Hostname(), "PORT", at.Port(), "TRACE", trace, "DIR", w.dir)
	for _, files := range more {
		for name, content := range files {
			if filepath.Ext(name) == ".yaml" { // such a file names other files
				content = fill.Replace(content)
			}
			err := errors.Join(os.MkdirAll(filepath.Join(w.dir, filepath.Dir(name)), 0o700), os.WriteFile(filepath.Join(w.dir, name), []byte(content), 0o600))
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range args {
		args[i] = fill.Replace(args[i])
	}
	end := make(chan replayed, 1)
	go func() {
		atOnce <- struct{}{}
		defer func() { <-atOnce }()
		var stdout, stderr bytes.Buffer
		w.asked()
		status := run(t.Context(), args, strings.NewReader(""), &stdout, &stderr)
		w.Close()
		end <- replayed{w, status, stdout.String(), stderr.String()}
	}()
	return func() replayed { return <-end }
}

// beginMany is begin for a command line that may limit its own duration. If more than four requests are expected, and a busy machine has
// sent no more than four in that time, the command runs again.
func beginMany(sees string, begin func() func() replayed) func() replayed {
	end := begin()
	return func() replayed {
		r := end()
		for try := 0; try < 5 && strings.Contains(sees, "requests more than 4") && len(r.seen) <= 4; try++ {
			r = begin()()
		}
		return r
	}
}

// see checks the expected effects of an alias.
func (w *aliasEngine) see(t *testing.T, what, out string) {
	t.Helper()
	for claim := range strings.SplitSeq(what, "; ") {
		word, rest, _ := strings.Cut(claim, " ")
		field, want, _ := strings.Cut(rest, "=")
		all := func(good func(a *arrived) bool) bool {
			return len(w.seen) > 0 && !slices.ContainsFunc(w.seen, func(a *arrived) bool { return !good(a) })
		}
		good := false
		switch word {
		case "requests":
			good = fmt.Sprint(len(w.seen)) == rest || rest == "fewer than 4" && len(w.seen) > 0 && len(w.seen) < 4 || rest == "more than 4" && len(w.seen) > 4
		case "over": // this much time, at least: the length of the schedule
			span, _ := time.ParseDuration(rest)
			good = len(w.seen) > 1 && w.lasted() >= span && w.scheduled(t).Round(time.Millisecond) >= span
		case "some": // body has the value
			good = slices.ContainsFunc(w.seen, func(a *arrived) bool { return fmt.Sprint(a.body[field]) == want })
		case "none": // of the bodies has the value
			good = !slices.ContainsFunc(w.seen, func(a *arrived) bool { return fmt.Sprint(a.body[field]) == want })
		case "all", "sim", "other": // requests, or those to this model, have the values
			var values []string
			field, want, _ = strings.Cut(strings.SplitN(rest, " ", 2)[1], "=")
			for _, a := range w.seen {
				if word == "all" || a.body["model"] == word {
					values = append(values, fmt.Sprint(a.body[field]))
				}
			}
			slices.Sort(values)
			good = strings.Join(values, " ") == want
		case "turns": // have this many messages, from the shortest
			var counts []int
			for _, a := range w.seen {
				messages, _ := a.body["messages"].([]any)
				counts = append(counts, len(messages))
			}
			slices.Sort(counts)
			good = strings.Trim(fmt.Sprint(counts), "[]") == rest
		case "hosts": // by their names, this many requests to each
			of := map[string]int{}
			for _, a := range w.seen {
				of[a.host]++
			}
			good = strings.Trim(fmt.Sprint(slices.Sorted(maps.Values(of))), "[]") == rest
		case "a": // connection for each session
			of, at := map[string]map[string]bool{}, map[string]map[string]bool{}
			note := func(to map[string]map[string]bool, key, value string) {
				if to[key] == nil {
					to[key] = map[string]bool{}
				}
				to[key][value] = true
			}
			for _, a := range w.seen {
				note(of, a.from, a.header.Get("X-Session-Id"))
				note(at, a.header.Get("X-Session-Id"), a.from)
			}
			good = len(of) > 1 && len(of) == len(at) && len(of) < len(w.seen)
		case "posts": // those of the end after all rows, the others before them
			var want []string
			for path := range strings.FieldsSeq(rest) {
				rows := 0
				if path == "/stop_profile" || path == "/v1/over" {
					rows = len(w.seen)
				}
				want = append(want, fmt.Sprintf("POST %s after %d", path, rows))
			}
			good = slices.Equal(w.posts, want)
		case "rows": // of the trace: as many sizes as lengths
			sizes := map[int]bool{}
			for _, a := range w.seen {
				sizes[a.size] = true
			}
			good = len(w.seen) == 4 && len(sizes) == 4
		case "spread": // over the schedule; unscheduled, they come at once
			good = len(w.seen) == 4 && w.lasted() > 150*time.Millisecond && w.scheduled(t) > 150*time.Millisecond
		case "longer": // prompts other than the trace's, which have 19,200 bytes
			total := 0
			for _, a := range w.seen {
				total += a.size
			}
			good = len(w.seen) == 4 && total > 23_000
		case "summary":
			field, want, _ = strings.Cut(rest, "=")
			good = want == w.summary(t, field)
		case "in": // a different order than that of the trace, as their sizes show
			good = len(w.seen) == 4 && (w.seen[1].size > w.seen[3].size || w.seen[3].size > w.seen[0].size || w.seen[0].size > w.seen[2].size)
		case "one": // at a time, in the order of the trace, as their sizes show
			good = len(w.seen) == 4 && w.seen[1].size < w.seen[3].size && w.seen[3].size < w.seen[0].size && w.seen[0].size < w.seen[2].size
		case "first": // message of every chat: its role, and its content
			role, content, _ := strings.Cut(rest, " ")
			good = all(func(a *arrived) bool {
				messages, _ := a.body["messages"].([]any)
				is := fmt.Sprint(map[string]any{"role": role, "content": content})
				return len(messages) > 0 && fmt.Sprint(messages[0]) == is
			})
		case "waits": // at least this long from one turn of a session to the next, with a reply in between
			least, _ := time.ParseDuration(rest)
			last, turns := map[string]time.Time{}, 0
			good = true
			for _, a := range w.seen {
				session := a.header.Get("X-Session-Id")
				if before, later := last[session]; later {
					turns++
					good = good && a.at.Sub(before) >= least
				}
				last[session] = a.at
			}
			good = good && turns > 0 && last[""].IsZero()
		case "within": // this much of the schedule
			span, _ := time.ParseDuration(rest)
			good = w.scheduled(t).Round(time.Millisecond) <= span
		case "at": // once: the schedule has no length, and any limit on requests in flight is above four
			good = w.scheduled(t) == 0
		case "path":
			good = all(func(a *arrived) bool { return a.path == rest })
		case "model":
			good = all(func(a *arrived) bool { return a.body["model"] == rest })
		case "images": // this many of a size and format are in every body
			var n, width, height int
			var format string
			if _, err := fmt.Sscanf(rest, "%d of %dx%d %s", &n, &width, &height, &format); err != nil {
				t.Fatal(err)
			}
			good = all(func(a *arrived) bool {
				pictures := picturesOf(t, a.body)
				return len(pictures) == n && !slices.ContainsFunc(pictures, func(p image.Config) bool { return p.Width != width || p.Height != height }) &&
					strings.Count(fmt.Sprint(a.body), "data:image/"+format+";base64,") == n
			})
		case "text": // in every body, at least ten times
			good = all(func(a *arrived) bool {
				return strings.Count(fmt.Sprint(a.body["prompt"], a.body["messages"]), rest) >= 10
			})
		case "header":
			prefix, open := strings.CutSuffix(want, "*")
			good = all(func(a *arrived) bool {
				return a.header.Get(field) == want || open && strings.HasPrefix(a.header.Get(field), prefix)
			})
		case "body":
			good = all(func(a *arrived) bool {
				v, there := a.body[field]
				return there && fmt.Sprint(v) == want || !there && want == "" || there && v == false && want == ""
			})
		case "file":
			_, err := os.Stat(filepath.Join(w.dir, rest))
			good = err == nil
		case "output":
			good = strings.Contains(out, rest)
		default:
			t.Fatalf("%q: a claim of an unknown kind", claim)
		}
		if !good {
			var paths []string
			for _, a := range w.seen {
				paths = append(paths, fmt.Sprintf("%s %v %d bytes", a.path, a.body["model"], a.size))
			}
			t.Errorf("not seen: %s, in %d requests: %s", claim, len(w.seen), strings.Join(paths, ", "))
		}
	}
}

// summary returns a value of the one summary.json that a run wrote, by the names that lead to it.
func (w *aliasEngine) summary(t *testing.T, path string) string {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(w.dir, "*", "summary.json"))
	if len(files) != 1 {
		t.Fatalf("%d files summary.json", len(files))
	}
	text, err := os.ReadFile(files[0])
	var value any
	if err = errors.Join(err, json.Unmarshal(text, &value)); err != nil {
		t.Fatal(err)
	}
	for name := range strings.SplitSeq(path, ".") {
		object, _ := value.(map[string]any)
		value = object[name]
	}
	return fmt.Sprint(value)
}

// traceFor has the rows of [aliasTrace], in the same order, far enough apart if times are checked.
func traceFor(sees string) string {
	if strings.Contains(sees, "spread") {
		return strings.NewReplacer(`:40,`, `:200,`, `:80,`, `:400,`, `:120,`, `:600,`).Replace(aliasTrace)
	}
	return aliasTrace
}

// picturesOf returns the images of the last message of a chat.
func picturesOf(t *testing.T, body map[string]any) (out []image.Config) {
	t.Helper()
	text, _ := json.Marshal(body)
	var chat struct {
		Messages []struct {
			Content []struct {
				Image struct{ URL string } `json:"image_url"`
			}
		}
	}
	if err := json.Unmarshal(text, &chat); err != nil || len(chat.Messages) == 0 {
		t.Fatalf("%v: %.300s", err, text)
	}
	for _, part := range chat.Messages[len(chat.Messages)-1].Content {
		if _, data, is := strings.Cut(part.Image.URL, ";base64,"); is {
			raw, err := base64.StdEncoding.DecodeString(data)
			if err != nil {
				t.Fatal(err)
			}
			config, _, err := image.DecodeConfig(bytes.NewReader(raw))
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, config)
		}
	}
	return out
}

// filesFor returns the files that arguments need: those that they name, and another trace where aliasTrace would not do.
func filesFor(args string) map[string]string {
	switch {
	case strings.Contains(args, "talk.json"):
		return map[string]string{"talk.json": talk()}
	case strings.Contains(args, "run.yaml"):
		return map[string]string{"run.yaml": "seed: 5\n"}
	case strings.Contains(args, "rates.json"):
		return map[string]string{"rates.json": `{"points": [{"time_s": 0, "qps": 5}, {"time_s": 1, "qps": 10}]}`}
	case strings.Contains(args, "sticky-user-sessions"):
		return map[string]string{"trace.jsonl": `{"timestamp":0,"session_id":"a","input_length":600,"output_length":2,"hash_ids":[1,2]}
{"timestamp":10,"session_id":"b","input_length":700,"output_length":2,"hash_ids":[3,4]}
{"timestamp":20,"session_id":"a","input_length":800,"output_length":2,"hash_ids":[1,5]}
{"timestamp":30,"session_id":"b","input_length":900,"output_length":2,"hash_ids":[3,6]}
`}
	case strings.Contains(args, "--session-header"):
		return map[string]string{"trace.jsonl": `{"timestamp":0,"session_id":"a","input_length":600,"output_length":2,"hash_ids":[1,2]}
{"timestamp":10,"session_id":"a","input_length":700,"output_length":2,"hash_ids":[1,3]}
`}
	}
	return nil
}

// talk returns a dataset in ShareGPT's format.
func talk() string {
	var b strings.Builder
	b.WriteString(`[{"id":"a","conversations":[{"from":"human","value":"Who keeps the lighthouse?"},{"from":"gpt","value":"`)
	for i := range 400 {
		fmt.Fprintf(&b, "The lighthouse of bay %d has a keeper, who counts the ships. ", i)
	}
	b.WriteString(`"}]}]`)
	return b.String()
}

// TestAliases runs each accepted line of the table as a command line, and checks what the engine got.
func TestAliases(t *testing.T) {
	t.Parallel()
	tests, of := map[string]func() replayed{}, map[string]alias{}
	for _, a := range some(rows) {
		for tool := range strings.FieldsSeq(a.tools) {
			if a.state == refused || a.try == "" { // see TestRefusedAliases; --otel-url and --insecure need more than an engine
				continue
			}
			of[tool+"/"+a.name] = a
			tests[tool+"/"+a.name] = beginMany(a.sees, func() func() replayed {
				args := []string{"replay", "--overhead", "1"}
				if tool != anyTool {
					args = append(args, "--as", tool)
				}
				if !strings.Contains(a.try, "ENGINE") && !strings.Contains(a.try, "HOST") {
					args = append(args, "--url", "ENGINE")
				}
				if !strings.Contains(a.try, "TRACE") {
					args = append(args, "TRACE")
				}
				return begin(t, traceFor(a.sees), recorded(append(args, strings.Fields(a.try)...), a.sees), filesFor(a.try))
			})
		}
	}
	for name, end := range tests {
		t.Run(name, func(t *testing.T) {
			a, r := of[name], end()
			r.good(t)
			if a.state == ignored && !strings.Contains(r.said, "--"+a.name+" has no effect: "+a.note) {
				t.Errorf("nothing was said of its having no effect:\n%s", r.said)
			}
			r.see(t, a.sees, r.out)
		})
	}
}

// good requires that the replay ended as it should.
func (r *replayed) good(t *testing.T) {
	t.Helper()
	if r.status != exitOK && r.status != exitInvalid { // a run can be invalid on a busy machine
		t.Fatalf("status %d, said:\n%s", r.status, r.said)
	}
}

// TestRefusedAliases puts all refused flags of a tool on one command line, and on another one its flags without effect that TestAliases does
// not try.
func TestRefusedAliases(t *testing.T) {
	t.Parallel()
	for tool := range toolNames {
		for _, state := range []string{refused, ignored} {
			t.Run(tool+"/"+state, func(t *testing.T) {
				t.Parallel()
				args := []string{"replay", "--as", tool, "--overhead", "1", "--url", "ENGINE", "TRACE"} // before the flags, one of which would take it as its value
				var given []alias
				for _, a := range aliases {
					if a.state != state || a.try != "" || !slices.Contains(strings.Fields(a.tools), tool) {
						continue
					}
					given = append(given, a)
					args = append(args, "--"+a.name)
					if a.takes != "" {
						args = append(args, "1")
					}
				}
				if len(given) == 0 {
					return
				}
				r := begin(t, aliasTrace, args)()
				for _, a := range given {
					want := "--" + a.name + " has no effect: " + a.note
					if state == refused {
						want = "--" + a.name + ": a flag of " + toolNames[tool] + " that a replay does not have: " + a.note
					}
					if !strings.Contains(r.said, want) {
						t.Errorf("not said: %s", want)
					}
				}
				if state == ignored {
					r.see(t, "requests 4", r.out)
				} else if r.status != exitUsage || len(r.seen) > 0 {
					t.Errorf("status %d, %d requests", r.status, len(r.seen))
				}
				if t.Failed() {
					t.Log(r.said)
				}
			})
		}
	}
}

// TestEveryFlagIsKnown: the lists have each flag in the help or the parser of the tools: AIPerf 0.13.0, vLLM 0.32.0, GuideLLM 0.8.1 with
// the flags of 0.6, and TraceReplay, which has vLLM's and three more. Each is in the table as that tool's, or as moonloop's.
func TestEveryFlagIsKnown(t *testing.T) {
	fs := newReplayCommand().Flags()
	for tool := range toolNames {
		list, err := os.ReadFile(filepath.Join("testdata", "othertools", tool+".txt"))
		if err != nil {
			t.Fatal(err)
		}
		for name := range strings.FieldsSeq(string(list)) {
			theirs := slices.ContainsFunc(aliases, func(a alias) bool { return a.name == name && slices.Contains(strings.Fields(a.tools), tool) })
			if !theirs && fs.Lookup(name) == nil {
				t.Errorf("--%s of %s is not known", name, toolNames[tool])
			}
		}
	}
	seen := map[string]bool{}
	for _, a := range aliases {
		for tool := range strings.FieldsSeq(a.tools) {
			if id := tool + " " + a.name; seen[id] {
				t.Errorf("--%s of %s is in the table twice", a.name, toolNames[tool])
			} else {
				seen[id] = true
			}
		}
	}
}

// TestWholeCommandLines runs the command lines in the tools' documentation, without the program's name and without --as.
func TestWholeCommandLines(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ line, sees string }{
		"AIPerf": {
			"profile --model sim --endpoint-type chat --endpoint /v1/chat/completions --streaming --url HOST:PORT --input-file TRACE " +
				"--custom-dataset-type mooncake_trace --fixed-schedule --fixed-schedule-auto-offset",
			"requests 4; rows of the trace; spread over the schedule; path /v1/chat/completions; model sim; body stream=true",
		},
		"AIPerf, a window": {
			"--model sim --endpoint-type chat --streaming --url HOST:PORT --input-file TRACE --custom-dataset-type mooncake_trace " +
				"--fixed-schedule --fixed-schedule-start-offset 40 --fixed-schedule-end-offset 80",
			"requests 2; model sim",
		},
		"AIPerf, a closed loop": {
			"-m sim --endpoint-type chat -u HOST:PORT --input-file TRACE --custom-dataset-type mooncake_trace --no-fixed-schedule --concurrency 1 --request-count 4",
			"requests 4; one at a time; model sim",
		},
		"vLLM": {
			"bench serve --backend vllm --model sim --endpoint /v1/completions --base-url ENGINE --dataset-name timed_trace --dataset-path TRACE " +
				"--self-timed --timed-trace-chunk-hash-size 512 --timed-trace-sec-multiplier 0.001 --ignore-eos --num-prompts 4 --save-result " +
				"--result-dir DIR/res --result-filename x.json --goodput ttft:500 tpot:50 --percentile-metrics ttft,tpot --metric-percentiles 50,99 --temperature 0 --seed 3 --request-rate inf",
			"requests 4; rows of the trace; spread over the schedule; path /v1/completions; model sim; body temperature=0; file res/x/summary.json",
		},
		"GuideLLM": {
			"run --backend kind=openai_http,target=ENGINE --profile kind=replay --data kind=mooncake,source.kind=json_file,source.path=TRACE,time_scale=0.001",
			"requests 4; rows of the trace; spread over the schedule; model other",
		},
		"vLLM, at a rate": {
			"bench serve --backend vllm --model sim --base-url ENGINE --dataset-name timed_trace --dataset-path TRACE --no-self-timed " +
				"--timed-trace-chunk-hash-size 512 --num-prompts 4 --request-rate 8 --burstiness 10000",
			"requests 4; rows of the trace; spread over the schedule",
		},
		"vLLM, log probabilities of chats, which take no number": {
			"bench serve --backend openai-chat --model sim --base-url ENGINE --dataset-name timed_trace --dataset-path TRACE --timed-trace-sec-multiplier 0.001 " +
				"--timed-trace-chunk-hash-size 512 --logprobs 3",
			"requests 4; none logprobs=3; path /v1/chat/completions",
		},
		"vLLM, a rising rate, over its default of 1,000 requests": {
			"bench serve --backend vllm --model sim --base-url ENGINE --dataset-name timed_trace --dataset-path TRACE --no-self-timed " +
				"--timed-trace-chunk-hash-size 512 --ramp-up-strategy linear --ramp-up-start-rps 50 --ramp-up-end-rps 150",
			"requests 4; summary config.ramp-up=10s",
		},
		"AIPerf, at a rate": {
			"profile --model sim --endpoint-type chat --streaming -u HOST:PORT --input-file TRACE --custom-dataset-type mooncake_trace " +
				"--no-fixed-schedule --request-rate 8 --arrival-pattern constant --concurrency 8",
			"requests 4; rows of the trace; spread over the schedule",
		},
		"GuideLLM, at a rate": {
			"benchmark --target ENGINE --profile constant --rate 8 --data TRACE --max-seconds 60 --model sim",
			"requests 4; rows of the trace; spread over the schedule",
		},
		"GuideLLM, streams one by one": {
			"benchmark --target ENGINE --profile kind=concurrent,streams=4,rampup_duration=600 --data TRACE --model sim",
			"requests 4; one at a time",
		},
		"GuideLLM, with the flags of 0.6": {
			"benchmark --target ENGINE --profile replay --rate 0.001 --data TRACE --max-seconds 60 --max-requests 3 --model sim",
			"requests 3; model sim",
		},
		"TraceReplay": {
			"--model /path/of/sim --served-model-name sim --backend openai-chat --trace-path TRACE --trace-mode trace --host HOST --port PORT " +
				"--dataset-name sharegpt --save-result --result-dir DIR/out --save-prompts --trust-remote-code",
			"requests 4; rows of the trace; spread over the schedule; path /v1/chat/completions; model sim; file out/summary.json",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := begin(t, traceFor(test.sees), recorded(strings.Fields("replay --overhead 1 "+test.line), test.sees))()
			r.good(t)
			r.see(t, test.sees, r.out)
		})
	}
}

// TestAmbiguousAliases: a flag with different meanings in two tools is refused with both meanings, until --as decides. Values and
// combinations of flags that a replay cannot use are refused, too, with what to do.
func TestAmbiguousAliases(t *testing.T) {
	for _, test := range []struct {
		line string
		want []string
	}{
		{"--dataset-name random", []string{"vLLM", "TraceReplay", "--as vllm", "--as tracereplay"}},
		{"--dataset-name random --as vllm", []string{"want timed_trace"}},
		{"--trace-mode replay", []string{"want trace or benchmark"}},
		{"--trace-mode benchmark", []string{"--dataset-name sharegpt", "--dataset-path FILE"}},
		{"--trace-mode benchmark --dataset-name hf --dataset-path a/b", []string{"want sharegpt, custom or sonnet", "--dataset FILE"}},
		{"--trace-mode benchmark --dataset-name sharegpt", []string{"--dataset-path FILE", "nothing is downloaded"}},
		{"--trace-mode benchmark --dataset-name sharegpt --dataset-path DIR/none.json", []string{"none.json"}},
		{"--trace-mode benchmark --dataset-name sharegpt --dataset-path /dev/null", []string{"no text"}},
		{"--profile", []string{"its value is missing"}},
		{"--prompts dataset", []string{"its file is missing", "--prompts dataset FILE"}},
		{"--prompts verse", []string{"want dataset FILE, words or tokens"}},
		{"--prompts dataset DIR/none.txt", []string{"none.txt"}},
		{"--format json", []string{"want table", "--out DIR"}},
		{"--dataset-sampling-strategy weighted", []string{"want sequential, shuffle or random"}},
		{"--connection-reuse-strategy sometimes", []string{"want pooled, never or sticky-user-sessions"}},
		{"--goodput time_to_first_token:100,prefill_throughput_per_user:5", []string{"prefill_throughput_per_user", "where name is ttft, ttst, itl"}},
		{"--goodput time_to_first_token:100 time_to_first_token:200", []string{"time_to_first_token is given twice: give it once"}},
		{"--goodput output_token_throughput_per_user:0", []string{"want a number of tokens per second"}},
		{"--export-level raw", []string{"--output-artifact-dir DIR"}},
		{"--export-level all", []string{"want summary, records or raw"}},
		{"--reset-kv-cache-path reset", []string{"a path that begins with one slash"}},
		{"--engine-post later=/x", []string{"before, start or end"}},
		{"--request-rate-series DIR/none.json", []string{"none.json"}},
		{"--request-rate-series TRACE", []string{"trace.jsonl", "time_s"}},
		{"--request-rate-series DIR/none.json --request-rate 4", []string{"leave one of the two out"}},
		{"--warmup-request-rate 4", []string{"without a warm-up"}},
		{"--warmup-request-count 2 --warmup-arrival-pattern constant", []string{"without --warmup-request-rate"}},
		{"--profile sweep --rate 4", []string{"moonloop search finds the highest that an engine can handle"}},
		{"--profile kind=bursts", []string{"want async or concurrent or constant or poisson or replay or synchronous or throughput"}},
		{"--profile constant", []string{"--rate is missing"}},
		{"--profile poisson --rate 1,2", []string{"want one value"}},
		{"--ramp-up-strategy linear --ramp-up-start-rps 1 --ramp-up-end-rps 2", []string{"--num-prompts"}},
		{"--user-centric-rate 4", []string{"--num-users"}},
		{"--num-users 4", []string{"--user-centric-rate"}},
		{"--user-centric-rate nan --num-users 4", []string{"want a number of requests per second"}},
		{"--user-centric-rate 4 --num-users 4 --request-rate 5", []string{"given twice"}},
		{"--user-centric-rate 4 --num-users 4 --arrival-pattern poisson", []string{"each sends at equal intervals"}},
		{"--ramp-up-strategy linear --num-prompts 4", []string{"--ramp-up-start-rps"}},
		{"--request-cancellation-rate 200", []string{"want a percentage from 0 to 100"}},
		{"--request-rate 0", []string{"want a number of requests per second"}},
		{"--request-rate 4 --arrival-pattern bursts", []string{"--arrival-pattern: \"bursts\": want constant, poisson, gamma or concurrency_burst"}},
		{"--request-rate 4 --arrival-pattern concurrency_burst", []string{"leave one of the two out"}},
		{"--concurrency 10,20,30 --as aiperf", []string{"a run has one setting", "moonloop search"}},
		{"--custom-dataset-type speed_bench_qa", []string{"moonloop convert"}},
		{"--scenario other --as aiperf", []string{"want inferencex-agentx-mvp"}},
		{"--scenario inferencex-agentx-mvp --request-rate 4", []string{"and so does --request-rate"}},
		{"--scenario inferencex-agentx-mvp --fixed-schedule", []string{"leave one of the two out"}},
		{"--ignore-trace-delays --use-think-time-only", []string{"leave one of the two out"}},
		{"--ignore-trace-delays --fixed-schedule", []string{"leave one of the two out"}},
		{"--no-fixed-schedule --inter-turn-delay-cap-seconds -1", []string{"want a number of seconds above 0"}},
		{"--no-fixed-schedule --inter-turn-delay-cap-seconds 1e300", []string{"want a number of seconds above 0"}},
		{"--cache-bust everywhere", []string{"want system_prefix"}},
		{"--num-dataset-entries -3", []string{"first-conversations"}},
		{"--graph-format native", []string{"moonloop capture"}},
		{"--graph-format yaml", []string{"want dynamo_trace, weka_trace or dag_jsonl"}},
		{"--endpoint-typ chat", []string{"did you mean --endpoint-type?"}},
		{"--trace-pat x", []string{"did you mean --trace-path?"}},
	} {
		r := begin(t, aliasTrace, append(strings.Fields("replay TRACE --url ENGINE"), strings.Fields(test.line)...))()
		for _, text := range test.want {
			if r.status != exitUsage || len(r.seen) > 0 || !strings.Contains(r.said, text) {
				t.Errorf("%s: status %d, %d requests, and %q is not in:\n%s", test.line, r.status, len(r.seen), text, r.said)
			}
		}
	}
}

// TestStricterObjective: AIPerf's two objectives about the time between tokens become one, the stricter one.
func TestStricterObjective(t *testing.T) {
	for values, want := range map[string]string{
		"inter_token_latency:50 output_token_throughput_per_user:25 request_latency:5000": "--slo=itl:40 request_latency:5000",
		"output_token_throughput_per_user:25,inter_token_latency:30":                      "--slo=inter_token_latency:30",
		"inter_token_latency:50 output_token_throughput_per_user:20":                      "--slo=inter_token_latency:50",
	} {
		tr := new(translator)
		for value := range strings.SplitSeq(values, ",") { // the flag, once or twice
			if err := tr.goodput(value); err != nil {
				t.Error(err)
			}
		}
		if len(tr.args) != 1 || tr.args[0] != want {
			t.Errorf("%s: got %q, want %q", values, tr.args, want)
		}
	}
}

// TestExtraValues: the values of AIPerf's pairs have the types that AIPerf gives them.
func TestExtraValues(t *testing.T) {
	for pairs, want := range map[string]string{
		"a:1,b:2":                 `{"a":1,"b":2}`,
		" a : 1 , b : x y":        `{"a":1,"b":"x y"}`,
		"a:True,b:FALSE,c:None":   `{"a":true,"b":false,"c":null}`,
		"a:.5,b:-2.5,c:3.,d:0":    `{"a":0.5,"b":-2.5,"c":3,"d":0}`,
		"a:1e3,b:007,c:.,d:1.2.3": `{"a":"1e3","b":"007","c":".","d":"1.2.3"}`,
		`a:"x",b:[1],c:http://d`:  `{"a":"\"x\"","b":"[1]","c":"http://d"}`,
		"a:12345678901234567890":  `{"a":12345678901234567890}`,
		`{"a": {"b": [1, 2]}}`:    `{"a":{"b":[1,2]}}`,
	} {
		tr := &translator{extra: map[string]json.RawMessage{}}
		err := tr.extraPairs(pairs)
		if got, _ := json.Marshal(tr.extra); err != nil || string(got) != want {
			t.Errorf("%s: got %s, %v; want %s", pairs, got, err, want)
		}
	}
	for _, pairs := range []string{"a:1,b", ":1", "a:1,", "a:1,a:2"} {
		if err := (&translator{extra: map[string]json.RawMessage{}}).extraPairs(pairs); err == nil {
			t.Errorf("%s: accepted", pairs)
		}
	}
}

// TestCacheBust: prompts differ from those of all other runs, unless there is a seed.
func TestCacheBust(t *testing.T) {
	t.Parallel()
	text := func(line string) string {
		r := begin(t, aliasTrace, append(strings.Fields("replay TRACE --url ENGINE --overhead 1 --max-requests 1"), strings.Fields(line)...))()
		r.good(t)
		return fmt.Sprint(r.seen[0].body["messages"])
	}
	plain := text("--cache-bust none")
	if plain != text("") || plain != text("--cache-bust system_prefix --random-seed 0") {
		t.Error("prompts that should be unchanged are not")
	}
	if once := text("--cache-bust first_turn_prefix"); once == plain || once == text("--cache-bust first_turn_prefix") {
		t.Error("prompts of two runs are the same")
	}
	passes := begin(t, aliasTrace, strings.Fields("replay TRACE --url ENGINE --overhead 1 --loop 2 --cache-bust first_turn_suffix --transform --first=2"))()
	passes.good(t)
	if a, b := passes.seen[0], passes.seen[2]; fmt.Sprint(a.body["messages"]) == fmt.Sprint(b.body["messages"]) {
		t.Error("prompts of two passes are the same")
	}
}

// TestNothingIsDownloaded: a data set of a hub is refused, and the error says what to download.
func TestNothingIsDownloaded(t *testing.T) {
	for line, want := range map[string]string{
		"--public-dataset semianalysis_cc_traces_weka":                             "hf download semianalysisai/cc-traces-weka-no-subagents-051826 ",
		"--public-dataset semianalysis_cc_traces_weka_062126_256k":                 "hf download semianalysisai/cc-traces-weka-062126-256k ",
		"--public-dataset weka_hf --hf-weka-dataset a/b":                           "hf download a/b ",
		"--hf-weka-dataset a/b":                                                    "--hf-weka-dataset \"a/b\": nothing is downloaded",
		"--public-dataset sharegpt":                                                "name its file with --input-file",
		"profile --url localhost:1 --public-dataset semianalysis_cc_traces_weka_x": "name its file with --input-file",
	} {
		r := begin(t, aliasTrace, strings.Fields("replay "+line))()
		if r.status != exitUsage || !strings.Contains(r.said, want) {
			t.Errorf("%s: status %d:\n%s", line, r.status, r.said)
		}
	}
}

// TestFromOtherTools: the page has the table. Run with -update to write it.
func TestFromOtherTools(t *testing.T) {
	var b strings.Builder
	for _, tool := range []string{aiperf, vllm, guidellm, traceReplay} {
		fmt.Fprintf(&b, "\n## %s\n\n### Flags\n\n| theirs | ours | status | note |\n|---|---|---|---|\n", toolNames[tool])
		for _, a := range rows {
			if slices.Contains(strings.Fields(a.tools), tool) {
				ours := a.ours
				if ours != "" {
					ours = "`" + ours + "`"
				}
				fmt.Fprintf(&b, "| `--%s` | %s | %s | %s |\n", a.name, ours, a.state, strings.ReplaceAll(a.note, "|", `\|`))
			}
		}
		b.WriteString("\nFlags that have nothing to do with the replay of a trace:\n\n| theirs | about | status | note |\n|---|---|---|---|\n")
		for _, f := range families {
			if slices.Contains(strings.Fields(f.tools), tool) {
				var names []string
				for word := range strings.FieldsSeq(f.flags) {
					name, _, _ := strings.Cut(word, "=")
					names = append(names, "`--"+name+"`")
				}
				fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", strings.Join(names, " "), f.about, f.state, f.note)
			}
		}
		writeMembers(&b, tool)
		writePrinted(&b, tool)
		writeFields(&b, tool)
		writeFigures(&b, tool)
		writeCommands(&b, tool)
	}
	b.WriteString("\n## Other names of moonloop's own flags\n\n| name | flag | note |\n|---|---|---|\n")
	for _, a := range rows {
		if a.tools == anyTool {
			fmt.Fprintf(&b, "| `--%s` | `%s` | %s |\n", a.name, strings.ReplaceAll(a.ours, ", ", "`, `"), a.note)
		}
	}
	checkPage(t, "../../docs/from-other-tools.md", b.String())
}

// checkPage requires that the end of a page, after the line that names the test, is the generated text. With -update, it writes the page.
func checkPage(t *testing.T, page, generated string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	begin := "<!-- written by go test ./cmd/moonloop -run " + t.Name() + " -update -->\n"
	head, _, found := strings.Cut(string(text), begin)
	if !found {
		t.Fatalf("%s lacks the line %s", page, begin)
	}
	want := head + begin + generated
	if flag.Lookup("update").Value.String() == "true" {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Errorf("the page is not the table (-table +page); run with -update:\n%s", diff)
	}
}

// TestBenchmarkModeAgain: the prompts of TraceReplay's benchmark mode are the same for the same seed, differ for another, share what the
// hash ids say, and are sent byte for byte in a replay of the file that --save-prompts wrote.
func TestBenchmarkModeAgain(t *testing.T) {
	t.Parallel()
	line := "replay --overhead 1 --model sim --backend vllm --trace-path TRACE --trace-mode benchmark --dataset-name sharegpt --dataset-path DIR/talk.json " +
		"--host HOST --port PORT --save-result --result-dir DIR/out --save-prompts"
	prompts := func(r replayed) (sent []string) {
		r.good(t)
		for _, a := range r.seen {
			sent = append(sent, fmt.Sprint(a.body["prompt"]))
		}
		slices.Sort(sent)
		return sent
	}
	files := map[string]string{"talk.json": talk()}
	first := begin(t, aliasTrace, strings.Fields(line), files)()
	sent := prompts(first)
	if diff := cmp.Diff(sent, prompts(begin(t, aliasTrace, strings.Fields(line), files)())); diff != "" || len(sent) != 4 {
		t.Errorf("%d prompts, again: %s", len(sent), diff)
	}
	if other := prompts(begin(t, aliasTrace, strings.Fields(line+" --seed 9"), files)()); slices.Equal(sent, other) {
		t.Error("another seed makes the same prompts")
	}
	shared := func(a, b string) (n int) {
		for n < min(len(a), len(b)) && a[n] == b[n] {
			n++
		}
		return n
	}
	byLength := func(tokens int) string { // of the row; the template has the token that --overhead 1 says
		at := slices.IndexFunc(first.seen, func(a *arrived) bool { return len(strings.Fields(fmt.Sprint(a.body["prompt"]))) == tokens-1 })
		if at < 0 {
			t.Fatalf("no prompt has %d words", tokens)
		}
		return fmt.Sprint(first.seen[at].body["prompt"])
	}
	whole := byLength(1100)
	for _, test := range []struct{ tokens, words int }{{1300, 1024}, {600, 512}, {700, 0}} { // the rows that share the ids 1 and 2; 1; none
		if n := len(strings.Fields(whole[:shared(whole, byLength(test.tokens))])); n < test.words || n > test.words+10 {
			t.Errorf("prompts of 1100 and %d tokens share %d words, want %d", test.tokens, n, test.words)
		}
	}
	saved, err := os.ReadFile(filepath.Join(first.dir, "out", "prompts.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	again := begin(t, string(saved), strings.Fields("replay --model sim --endpoint completions --url ENGINE TRACE"))()
	if diff := cmp.Diff(sent, prompts(again)); diff != "" {
		t.Errorf("from the file: %s", diff)
	}
}
