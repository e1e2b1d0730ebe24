// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"

	"github.com/moonloop/moonloop/agent"
)

const (
	barEvery  = 250 * time.Millisecond
	lineEvery = 10 * time.Second
)

// progressView shows a run under way: a bar on a terminal, a line now and then elsewhere.
type progressView struct {
	out  io.Writer
	mode string

	quit chan struct{}
	gone sync.WaitGroup
}

// newProgress returns the view for a mode: auto, bar, lines or none.
func newProgress(out io.Writer, mode string) *progressView {
	if mode == "auto" {
		mode = "lines"
		if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
			mode = "bar"
		}
	}
	return &progressView{out: out, mode: mode, quit: make(chan struct{})}
}

// follow shows the run from now on, until stop.
func (p *progressView) follow(live *agent.Live) {
	switch p.mode {
	case "bar":
		p.gone.Go(func() { p.bar(live) })
	case "lines":
		p.gone.Go(func() { p.lines(live) })
	}
}

// stop takes the view down. Call it once, also when follow was never called.
func (p *progressView) stop() {
	close(p.quit)
	p.gone.Wait()
}

func (p *progressView) lines(live *agent.Live) {
	tick := time.NewTicker(lineEvery)
	defer tick.Stop()
	for {
		select {
		case <-p.quit:
			return
		case <-tick.C:
			v := live.Look()
			fmt.Fprintf(p.out, "%s  %s\n", position(v), describe(v))
		}
	}
}

func (p *progressView) bar(live *agent.Live) {
	w := progress.NewWriter()
	w.SetOutputWriter(p.out)
	w.SetTrackerLength(24)
	w.SetMessageLength(88)
	w.SetUpdateFrequency(barEvery)
	w.SetStyle(progress.StyleBlocks)
	w.Style().Colors.Tracker = text.Colors{text.FgCyan}
	w.Style().Options.PercentFormat = "%3.0f%%"
	w.Style().Visibility.Value = false
	w.Style().Visibility.Time = false
	w.Style().Visibility.ETA = false
	w.SetAutoStop(false)
	tracker := &progress.Tracker{Message: "starting", Total: 1000}
	w.AppendTracker(tracker)
	var rendering sync.WaitGroup
	rendering.Go(w.Render)
	defer func() {
		w.Stop()
		rendering.Wait()
	}()
	tick := time.NewTicker(barEvery)
	defer tick.Stop()
	for {
		select {
		case <-p.quit:
			return
		case <-tick.C:
			v := live.Look()
			tracker.UpdateMessage(position(v) + "  " + describe(v))
			if v.End > 0 {
				tracker.SetValue(min(999, int64(1000*v.Offset/v.End)))
			}
		}
	}
}

// position says where in the run it is, and when it will end.
func position(v agent.View) string {
	at := v.Elapsed.Round(time.Second)
	switch {
	case v.Elapsed < 0:
		return "starting"
	case v.Stopped:
		return fmt.Sprintf("%s, ending", at)
	case v.End > v.Elapsed:
		return fmt.Sprintf("%s, %s left", at, (v.End - v.Elapsed).Round(time.Second))
	}
	return at.String()
}

// describe says how the run is doing.
func describe(v agent.View) string {
	s := fmt.Sprintf("sent %d · in flight %d · done %d · failed %d", v.Sent, v.InFlight, v.Served, v.Failed)
	if v.Skipped > 0 {
		s += fmt.Sprintf(" · skipped %d", v.Skipped)
	}
	return s + fmt.Sprintf(" · late %s · TTFT %s", short(v.Lateness), short(v.TTFT))
}

// short prints a duration with three digits.
func short(d time.Duration) string {
	switch {
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.2f ms", d.Seconds()*1e3)
	case d < time.Second:
		return fmt.Sprintf("%.0f ms", d.Seconds()*1e3)
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}
