// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/moonloop/moonloop/agent"
	"github.com/moonloop/moonloop/agent/measure"
)

// sample is a run that is half done.
func sample() agent.View {
	v := agent.View{
		Trace: "examples/demo.jsonl", Engine: "127.0.0.1:8000", Model: "a-model-with-a-long-name", RunID: "0123456789abcdef",
		Elapsed: 13 * time.Second, End: 26 * time.Second, Offset: 13 * time.Second,
		Sent: 150, InFlight: 10, Served: 137, Failed: 3, Chunks: 12_000, Cached: 600, Predicted: 800, Prompt: 1000,
		Errors:   []measure.Reason{{Reason: "500", Count: 2}, {Reason: "connect_timeout", Count: 1}},
		Lateness: agent.Quantiles{P50: 3 * time.Microsecond, P99: 20 * time.Millisecond},
		TTFT:     agent.Quantiles{P50: 25 * time.Millisecond, P99: 1500 * time.Millisecond},
	}
	for i := range 60 {
		v.Seconds = append(v.Seconds, agent.Second{Due: int64(i%9) + 3, Sent: int64(i % 9), Done: int64(i), Chunks: 900, TTFT: v.TTFT})
	}
	return v
}

// A view fits the width of the terminal, and always has eleven lines.
func TestRenderFits(t *testing.T) {
	for _, width := range []int{20, 40, 80, 120, 300} {
		out := render(sample(), width)
		count := 0
		for line := range strings.Lines(out) {
			count++
			if n := ansi.StringWidth(strings.TrimRight(line, "\n")); n > width {
				t.Errorf("%d columns: a line of %d: %q", width, n, ansi.Strip(line))
			}
		}
		if count != 11 {
			t.Errorf("%d columns: %d lines", width, count)
		}
	}
}

func TestRenderSays(t *testing.T) {
	out := ansi.Strip(render(sample(), 120))
	for _, want := range []string{
		"examples/demo.jsonl → 127.0.0.1:8000", "50 %", "13s, 13s left", "in flight 10 ", "8/s due, 5/s sent", "137 served, 3 failed: 500 ×2, connect_timeout ×1",
		"p50 25.0 ms", "p99 1.50 s", "p50 3 µs", "900/s", "60.0 % of the prompt tokens cached, 75 % of an infinite cache's hits",
		"lateness_p99 is 20 ms, above 10 ms", "█",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the view does not say %q:\n%s", want, out)
		}
	}
	empty := ansi.Strip(render(agent.View{Elapsed: -time.Second}, 80))
	for _, want := range []string{"starting", "nothing has ended", "no cached tokens"} {
		if !strings.Contains(empty, want) {
			t.Errorf("the view before the start does not say %q:\n%s", want, empty)
		}
	}
}

// The names of a trace's models and of an engine's come from others: they must not control the terminal.
func TestRenderIsPlain(t *testing.T) {
	v := sample()
	v.Trace, v.Model = "a\x1b]0;title\a.jsonl", "b\x1b[2J\u009b2J"
	out := render(v, 200)
	for _, bad := range []string{"\x1b]", "\a", "\x1b[2J", "\u009b"} {
		if strings.Contains(out, bad) {
			t.Errorf("the view has %q", bad)
		}
	}
	if !strings.Contains(ansi.Strip(out), `b\x1b[2J`) {
		t.Errorf("the view does not name the model: %q", out)
	}
}

func TestSpark(t *testing.T) {
	var seconds []agent.Second
	for i := range 8 {
		seconds = append(seconds, agent.Second{Sent: int64(i)})
	}
	if got := spark(seconds, sent, 20); got != "▁▂▃▄▅▆▇█" {
		t.Errorf("%q", got)
	}
	if got := spark(seconds, sent, 3); got != "▆▇█" {
		t.Errorf("the last three: %q", got)
	}
	if got := spark(seconds, func(agent.Second) float64 { return 0 }, 3); got != "▁▁▁" {
		t.Errorf("nothing: %q", got)
	}
}

// A screen draws while it is open, prints lines, and disappears when it is closed, even if the output is not a terminal.
func TestScreen(t *testing.T) {
	var out bytes.Buffer
	looked := make(chan struct{}, 100)
	s := Show(&out, func() agent.View { looked <- struct{}{}; return sample() })
	s.Println("a note")
	<-looked
	<-looked
	s.Close()
	s.Close()
	if !strings.Contains(ansi.Strip(out.String()), "a note") {
		t.Errorf("%.200q", ansi.Strip(out.String()))
	}
}
