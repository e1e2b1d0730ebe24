// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image"
	_ "image/png" // which decodes what arrives
	"strings"
	"testing"
	"time"

	"github.com/moonloop/moonloop/agent/judge"
	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/internal/simulator"
	"github.com/moonloop/moonloop/mooncake"
)

// otherRows are two rows with a length, and one with a text.
var otherRows = []string{
	`{"timestamp": 0, "input_length": 600, "output_length": 3, "hash_ids": [0, 1]}`,
	`{"timestamp": 50, "input_length": 700, "output_length": 4, "hash_ids": [0, 2]}`,
	`{"timestamp": 100, "text_input": "hello there", "output_length": 5}`,
}

// TestEmbeddings: a replay to /v1/embeddings sends each row's prompt, as words or token ids, and asks for no reply. Its figures are
// latencies and prompt tokens, and nothing that an embedding does not have.
func TestEmbeddings(t *testing.T) {
	for _, form := range []prompt.Form{prompt.Words, prompt.Tokens} {
		t.Run(string(form), func(t *testing.T) {
			cfg := simulator.Config{}
			cfg.Record.Headers = []string{"X-Request-Id"}
			e := newEngine(t, cfg)
			dir := t.TempDir()
			r := e.replay(t, Config{Out: dir, Prompt: Prompt{Endpoint: prompt.Embeddings, Form: form}}, otherRows...)
			if r.err != nil {
				t.Fatal(r.err)
			}
			f := r.report.Figures()
			if f.Rows.Served != 3 || f.Tokens.Embeddings != 3 || f.Tokens.Estimated+f.Tokens.NoContent+f.Tokens.Output.Unknown > 0 || r.report.Run.Streaming {
				t.Fatalf("%+v, %+v, %v", f.Rows, f.Tokens, f.Errors)
			}
			for i, want := range []int{600, 700} {
				if res := r.results[i].Result; r.sent[i].PromptTokens != want || res.Prompt != "equal" || res.Usage.Completion != 0 {
					t.Errorf("row %d: %d tokens, %+v", i, r.sent[i].PromptTokens, res)
				}
			}
			for i, rec := range r.sent {
				var body map[string]json.RawMessage
				if err := json.Unmarshal(rec.Body, &body); err != nil || len(body) != 2 || body["model"] == nil || body["input"] == nil || rec.Path != "/v1/embeddings" {
					t.Errorf("row %d: %v, %.200s", i, err, rec.Body)
				}
			}
			wire := measure.LatencyWire
			if f.Connections.WireLate == 3 { // on a busy machine, every reply may arrive before the time of the request's last byte is taken
				wire = measure.Latency
			}
			for _, id := range []measure.ID{measure.Latency, wire, measure.InputLength, measure.TotalThroughput, measure.RequestThroughput} {
				if s, ok := f.Stat(id); !ok || s.Avg <= 0 {
					t.Errorf("%s: %+v, %v", id, s, ok)
				}
			}
			for _, id := range []measure.ID{
				measure.TTFT, measure.TTFTIntended, measure.TTFE, measure.TTFO, measure.ITL, measure.TPOT, measure.TPOTWithFirst, measure.Decode, measure.OutputLength,
				measure.TokenThroughput, measure.TotalOutput, measure.RequestTokenThroughput, measure.PrefillThroughput, measure.PeakTokens,
			} {
				if s, ok := f.Stat(id); ok {
					t.Errorf("an embedding has a %s: %+v", id, s)
				}
			}
		})
	}
}

// TestEmbeddingsRefused: what an embedding cannot have is refused before anything is sent.
func TestEmbeddingsRefused(t *testing.T) {
	const messagesRefused = "messages go to the endpoints"
	for why, cfg := range map[string]Config{
		"neither a first token": {SLO: measure.SLO{TTFT: 1}},
		"no first token":        {Schedule: Schedule{PrefillConcurrency: 1}},
		"--session-mode full":   {Trace: Trace{Sessions: mooncake.SessionDelta}},
		messagesRefused:         {},
	} {
		e := newEngine(t, simulator.Config{})
		cfg.Prompt.Endpoint = prompt.Embeddings
		lines := []string{`{"timestamp": 0, "session_id": "s", "input_length": 100}`, `{"timestamp": 1, "session_id": "s", "input_length": 100}`}
		if why == messagesRefused { // a chat has no single text
			lines = []string{`{"timestamp": 0, "messages": [{"role": "user", "content": "hi"}]}`}
		}
		r := e.replay(t, cfg, lines...)
		said := fmt.Sprint(r.err)
		if len(r.results) > 0 {
			said += r.results[0].Result.Message
		}
		if !strings.Contains(said, why) || len(r.sent) > 0 {
			t.Errorf("%s: %s, %d sent", why, said, len(r.sent))
		}
	}
}

// TestGenerate: a replay to TGI's own API has the lengths of the trace, measured by the tokens of calibration prompts, and sends the
// earlier turns of a session and the replies to them as one text.
func TestGenerate(t *testing.T) {
	for _, whole := range []bool{false, true} {
		t.Run(fmt.Sprint("whole ", whole), func(t *testing.T) {
			cfg := simulator.Config{}
			cfg.Record.Headers = []string{"X-Request-Id"}
			e := newEngine(t, cfg)
			r := e.replay(t, Config{Prompt: Prompt{Endpoint: prompt.Generate, NoStream: whole}}, otherRows...)
			if r.err != nil {
				t.Fatal(r.err)
			}
			f := r.report.Figures()
			if f.Rows.Served != 3 || f.Tokens.Output.Equal != 3 || f.Tokens.Prompt.Equal != 2 {
				t.Fatalf("%+v, %+v, %v", f.Rows, f.Tokens, f.Errors)
			}
			if _, ok := f.Stat(measure.TTFT); ok == whole {
				t.Errorf("a first token: %v", ok)
			}
			for i, want := range []int64{3, 4, 5} {
				var body struct {
					Inputs     *string
					Parameters map[string]any
				}
				path := map[bool]string{true: "/generate", false: "/generate_stream"}[whole]
				if err := json.Unmarshal(r.sent[i].Body, &body); err != nil || body.Inputs == nil || body.Parameters["max_new_tokens"] != float64(want) ||
					body.Parameters["details"] != true || len(body.Parameters) != 2 || r.sent[i].Path != path {
					t.Errorf("row %d: %v, %s %.200s", i, err, r.sent[i].Path, r.sent[i].Body)
				}
			}
			if r.sent[0].PromptTokens != 600 {
				t.Errorf("%+v", r.sent[0])
			}
		})
	}
	cfg := simulator.Config{}
	cfg.Record.Headers = []string{"X-Request-Id"}
	e := newEngine(t, cfg)
	r := e.replay(t, Config{Trace: Trace{Sessions: mooncake.SessionDelta}, Prompt: Prompt{Endpoint: prompt.Generate}},
		`{"timestamp": 0, "session_id": "s", "text_input": "one two", "output_length": 3}`, `{"delay": 1, "session_id": "s", "text_input": " three", "output_length": 3}`)
	var first, second struct{ Inputs string }
	if r.err != nil || len(r.sent) != 2 || json.Unmarshal(r.sent[0].Body, &first) != nil || json.Unmarshal(r.sent[1].Body, &second) != nil ||
		!strings.HasPrefix(second.Inputs, first.Inputs) || len(strings.Fields(second.Inputs)) < 5 {
		t.Errorf("%v, %+v, %+v", r.err, first, second)
	}
}

// TestImageFlags: settings of images without any image cause a warning.
func TestImageFlags(t *testing.T) {
	const row, pictured = `{"timestamp": 0, "input_length": 100, "output_length": 2}`, `{"timestamp": 9, "input_length": 100, "output_length": 2, "images": [[7, 40, 30]]}`
	size := prompt.ImageSize{Width: 20, Height: 10}
	const none = "no row has images, on which "
	for _, test := range []struct {
		images prompt.Images
		rows   []string
		ahead  int
		want   string
	}{
		{prompt.Images{Size: size}, []string{row}, 0, none + "--image-size would"},
		{prompt.Images{Format: prompt.JPEG, Tokens: 9}, []string{row}, 0, none + "--image-format and --image-tokens would"},
		{prompt.Images{Size: size}, []string{row, pictured}, 1, "none of the first 1 rows has images, on which --image-size would"},
		{prompt.Images{Size: size}, []string{row, pictured}, 0, ""},
		{prompt.Images{Size: size, Each: 1}, []string{row}, 0, ""},
		{prompt.Images{Format: prompt.PNG}, []string{row}, 0, ""},
	} {
		e := newEngine(t, simulator.Config{})
		r := e.replay(t, Config{Trace: Trace{Lookahead: test.ahead}, Prompt: Prompt{Images: test.images}}, test.rows...)
		if r.err != nil {
			t.Fatal(r.err)
		}
		said := strings.Join(r.report.Warnings, "\n")
		if !strings.Contains(said, test.want) || strings.Contains(said, "has images") != (test.want != "") {
			t.Errorf("%+v: %q, want %q", test.images, said, test.want)
		}
	}
}

// TestInterruptWhileImagesAreMade: an interrupt does not wait for the images of the rows that are due. Their requests are cancelled, and were
// not sent.
func TestInterruptWhileImagesAreMade(t *testing.T) {
	e := newEngine(t, simulator.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var lines []string
	for row := range 4 {
		images := make([]string, 16) // which take seconds
		for i := range images {
			images[i] = fmt.Sprintf("[%d, 4096, 4096]", 16*row+i)
		}
		lines = append(lines, fmt.Sprintf(`{"timestamp": 0, "input_length": 100, "output_length": 2, "images": [%s]}`, strings.Join(images, ", ")))
	}
	cfg := Config{Progress: func(l *Live) {
		go func() {
			defer cancel()
			for ctx.Err() == nil && l.Look().Due < 4 {
				time.Sleep(time.Millisecond)
			}
		}()
	}}
	r := e.replayContext(ctx, t, cfg, lines...)
	if r.err != nil {
		t.Fatal(r.err)
	}
	for _, row := range r.results {
		if row.Result.Attempts != 0 {
			t.Errorf("row %d was tried", row.Result.Row)
		}
	}
	if f := r.report.Figures(); f.Rows.Cancelled != 4 || f.Connections.Requests != 0 || r.report.ExitStatus != judge.ExitInterrupted {
		t.Errorf("%+v, %d requests sent, exit status %d", f.Rows, f.Connections.Requests, r.report.ExitStatus)
	}
}

// TestImages: images arrive as the rows say, the same image for the same id; those of warm-up requests are different.
func TestImages(t *testing.T) {
	rows := []string{
		`{"timestamp": 0, "input_length": 100, "output_length": 2, "images": [[7, 40, 30], [8, 0, 0]]}`,
		`{"timestamp": 20, "text_input": "what is this?", "output_length": 2, "images": [[7, 40, 30]]}`,
		`{"timestamp": 40, "input_length": 100, "output_length": 2}`,
	}
	for _, endpoint := range []prompt.Endpoint{prompt.Chat, prompt.Messages} {
		cfg := simulator.Config{}
		cfg.Record.Headers = []string{"X-Request-Id"}
		e := newEngine(t, cfg)
		r := e.replay(t, Config{Prompt: Prompt{Endpoint: endpoint, Images: prompt.Images{Size: prompt.ImageSize{Width: 20, Height: 10}}}, Schedule: Schedule{Warmup: 2}}, rows...)
		if r.err != nil || r.report.Figures().Rows.Served != 3 {
			t.Fatalf("%v, %+v", r.err, r.report)
		}
		type content []struct {
			Image  struct{ URL string }  `json:"image_url"`
			Source struct{ Data string } `json:"source"`
		}
		files := func(rec *simulator.Record) (out []string) {
			var body struct {
				Messages []struct{ Content json.RawMessage }
			}
			var parts content
			if err := json.Unmarshal(rec.Body, &body); err != nil {
				t.Fatal(err)
			}
			_ = json.Unmarshal(body.Messages[0].Content, &parts) // a text has none
			for _, p := range parts {
				if _, data, _ := strings.Cut(p.Image.URL, "base64,"); data+p.Source.Data != "" {
					out = append(out, data+p.Source.Data)
				}
			}
			return out
		}
		size := func(file string) (c image.Config) {
			c, _, err := image.DecodeConfig(base64.NewDecoder(base64.StdEncoding, strings.NewReader(file)))
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		one, two, none := files(r.sent[0]), files(r.sent[1]), files(r.sent[2])
		if len(one) != 2 || len(two) != 1 || len(none) != 0 || one[0] != two[0] || one[0] == one[1] {
			t.Fatalf("%s: %d, %d and %d pictures", endpoint, len(one), len(two), len(none))
		}
		if a, b := size(one[0]), size(one[1]); a.Width != 40 || a.Height != 30 || b.Width != 20 || b.Height != 10 {
			t.Errorf("%s: %+v, %+v", endpoint, a, b)
		}
		if r.sent[0].PromptTokens != 100 || r.results[0].Result.Prompt != "unknown" || r.results[2].Result.Prompt != "equal" {
			t.Errorf("%s: %d tokens, %s and %s", endpoint, r.sent[0].PromptTokens, r.results[0].Result.Prompt, r.results[2].Result.Prompt)
		}
		if len(r.warmups) != 2 || files(r.warmups[0])[0] == one[0] {
			t.Errorf("%s: %d warm-ups, with pictures of the trace", endpoint, len(r.warmups))
		}
	}
}
