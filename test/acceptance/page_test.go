// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package acceptance

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"
)

// look is what a browser shows of a page at one width, in one theme.
type look struct {
	Width      int      `json:"width"`
	Theme      string   `json:"theme"`
	Ready      float64  `json:"ready"` // ms
	Overflow   int      `json:"overflow"`
	Charts     int      `json:"charts"`
	Legend     string   `json:"legend"` // of the first chart, after keys moved its cursor
	Zoomed     bool     `json:"zoomed"` // by dragging
	Back       bool     `json:"back"`   // by Escape
	Dark       bool     `json:"dark"`
	Toggled    bool     `json:"toggled"`
	Console    []string `json:"console"`
	Requests   []string `json:"requests"` // that left the page
	Violations []struct {
		Impact  string `json:"impact"`
		ID      string `json:"id"`
		Example string `json:"example"`
	} `json:"violations"`
}

// TestAcceptancePage replays the public trace, all of its 12,031 requests, and opens the run's report page in a real browser: it is small,
// fast, usable by keys, works in both themes and on a phone, loads nothing from elsewhere, and is accessible. The same holds for the page that
// `moonloop report` draws for a replay that was killed. The pictures are for people.
func TestAcceptancePage(t *testing.T) {
	browser, moonloop, trace, dir := setting(t, "MOONLOOP_PAGE"), setting(t, "MOONLOOP_BIN"), setting(t, "MOONLOOP_TRACE"), artefacts(t)
	simulator := start(t, dir, "simulate", nil, moonloop, "simulate", "--listen", "127.0.0.1:0")
	engine := simulator.find(t, regexp.MustCompile(`listening on (\S+)`))
	args := []string{
		"replay", trace, "--url", engine, "--speedup", "60", "--progress", "none",
		"--slo", "ttft=2s", "--trace-url", "http://localhost:16686/trace/{trace_id}", "--out",
	}

	killed := filepath.Join(dir, "killed")
	replay := start(t, dir, "killed-replay", nil, moonloop, append(args, killed, "--seed", "2")...) // the next run needs a cold cache
	records := filepath.Join(killed, "requests.jsonl.partial")
	for deadline := time.Now().Add(time.Minute); lines(t, records) < 1000; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no 1,000 records in %s\n%s", records, replay.tail())
		}
	}
	if err := replay.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-replay.done
	if output, err := exec.CommandContext(t.Context(), moonloop, "report", killed).CombinedOutput(); err != nil {
		t.Fatalf("report: %v\n%s", err, output)
	}
	inspectPage(t, browser, filepath.Join(killed, "report.html"), filepath.Join(dir, "killed"))

	whole := filepath.Join(dir, "results")
	replay = start(t, dir, "replay", nil, moonloop, append(args, whole)...)
	if code := replay.wait(t, 10*time.Minute); code != 0 && code != 3 { // a busy machine makes a run invalid, but does not change the page
		t.Fatalf("the replay ended with status %d\n%s", code, replay.tail())
	}
	inspectPage(t, browser, filepath.Join(whole, "report.html"), filepath.Join(dir, "page"))
}

// lines counts the lines of a file, 0 if it does not exist yet.
func lines(t *testing.T, name string) int {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return bytes.Count(content, []byte("\n"))
}

// inspectPage checks a page at three widths in both themes.
func inspectPage(t *testing.T, browser, page, pictures string) {
	t.Helper()
	info, err := os.Stat(page)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: %d bytes", page, info.Size())
	if info.Size() >= 3_000_000 {
		t.Errorf("%s has %d bytes, want less than 3 MB", page, info.Size())
	}
	output, err := exec.CommandContext(t.Context(), "node", filepath.Join(browser, "look.mjs"), page, pictures).Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			t.Fatalf("the browser: %v\n%s", err, exit.Stderr)
		}
		t.Fatalf("the browser: %v", err)
	}
	looks := 0
	for line := range bytes.Lines(output) {
		var l look
		if err := json.Unmarshal(line, &l); err != nil {
			t.Fatal(err)
		}
		looks++
		l.check(t)
	}
	if looks != 6 {
		t.Errorf("%d looks, want 6", looks)
	}
}

func (l *look) check(t *testing.T) {
	t.Helper()
	t.Logf("%d px, %s: ready after %.0f ms, %d charts", l.Width, l.Theme, l.Ready, l.Charts)
	wrong := func(format string, args ...any) {
		t.Helper()
		t.Errorf("%d px, %s: "+format, append([]any{l.Width, l.Theme}, args...)...)
	}
	if l.Ready >= 2000 {
		wrong("usable after %.0f ms, want less than 2 s", l.Ready)
	}
	if l.Overflow > 0 {
		wrong("the page is %d px too wide", l.Overflow)
	}
	if l.Charts != 13 {
		wrong("%d charts, want 13", l.Charts)
	}
	if !regexp.MustCompile(`\d`).MatchString(l.Legend) {
		wrong("after three keys the legend says %q", l.Legend)
	}
	if !l.Zoomed || !l.Back {
		wrong("dragging zooms the other charts: %t; Escape takes them back: %t", l.Zoomed, l.Back)
	}
	if l.Dark != (l.Theme == "dark") || l.Toggled == l.Dark {
		wrong("dark %t, after the button %t", l.Dark, l.Toggled)
	}
	if len(l.Console) > 0 || len(l.Requests) > 0 {
		wrong("console %q, requests %q", l.Console, l.Requests)
	}
	for _, v := range l.Violations {
		wrong("axe: %s %s: %s", v.Impact, v.ID, v.Example)
	}
}
