// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package acceptance

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// look is what a browser saw of a page at one width, in one theme.
type look struct {
	Width      int      `json:"width"`
	Theme      string   `json:"theme"`
	Ready      float64  `json:"ready"` // ms
	Overflow   int      `json:"overflow"`
	Charts     int      `json:"charts"`
	Legend     string   `json:"legend"` // of the first chart, after keys moved its cursor
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

// TestAcceptancePage replays the public trace, all of its 12,031 requests, and opens the run's report page in a real browser: small,
// quick, usable by keys, in both themes, on a phone, without a request that leaves it, and without what keeps people out. The
// pictures are for eyes.
func TestAcceptancePage(t *testing.T) {
	browser, moonloop, trace, dir := setting(t, "MOONLOOP_PAGE"), setting(t, "MOONLOOP_BIN"), setting(t, "MOONLOOP_TRACE"), artefacts(t)
	simulator := start(t, dir, "simulate", nil, moonloop, "simulate", "--listen", "127.0.0.1:0")
	engine := simulator.find(t, regexp.MustCompile(`listening on (\S+)`))
	out := filepath.Join(dir, "results")
	replay := start(t, dir, "replay", nil, moonloop, "replay", trace, "--url", engine, "--speedup", "30", "--progress", "none", "--out", out,
		"--slo", "ttft=2s", "--trace-url", "http://localhost:16686/trace/{trace_id}")
	if code := replay.wait(t, 10*time.Minute); code != 0 && code != 3 {
		t.Fatalf("the replay ended with status %d\n%s", code, replay.tail())
	}
	page := filepath.Join(out, "report.html")
	info, err := os.Stat(page)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("report.html of 12,031 requests: %d bytes", info.Size())
	if info.Size() >= 3_000_000 {
		t.Errorf("report.html has %d bytes, want less than 3 MB", info.Size())
	}
	output, err := exec.CommandContext(t.Context(), "node", filepath.Join(browser, "look.mjs"), page, filepath.Join(dir, "page")).Output()
	if err != nil {
		t.Fatalf("the browser: %v", err)
	}
	looks := 0
	for line := range strings.Lines(string(output)) {
		var l look
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		looks++
		t.Logf("%d px, %s: ready after %.0f ms, %d charts", l.Width, l.Theme, l.Ready, l.Charts)
		switch {
		case l.Ready >= 2000:
			t.Errorf("%d px: usable after %.0f ms, want less than 2 s", l.Width, l.Ready)
		case l.Overflow > 0:
			t.Errorf("%d px: the page is %d px too wide", l.Width, l.Overflow)
		case l.Charts < 12:
			t.Errorf("%d px: %d charts, want 12", l.Width, l.Charts)
		case !regexp.MustCompile(`\d`).MatchString(l.Legend):
			t.Errorf("%d px: after three keys the legend says %q", l.Width, l.Legend)
		case l.Dark != (l.Theme == "dark") || l.Toggled == l.Dark:
			t.Errorf("%d px, %s: dark %t, after the button %t", l.Width, l.Theme, l.Dark, l.Toggled)
		}
		if len(l.Console) > 0 || len(l.Requests) > 0 {
			t.Errorf("%d px: console %q, requests %q", l.Width, l.Console, l.Requests)
		}
		for _, v := range l.Violations {
			t.Errorf("%d px, %s: axe: %s %s: %s", l.Width, l.Theme, v.Impact, v.ID, v.Example)
		}
	}
	if looks != 6 {
		t.Errorf("%d looks, want 6", looks)
	}
}
