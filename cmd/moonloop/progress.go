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
	barWidth  = 20 // columns
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

// each calls show with a view of the run, again and again until stop.
func (p *progressView) each(every time.Duration, live *agent.Live, show func(agent.View)) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-p.quit:
			return
		case <-tick.C:
			show(live.Look())
		}
	}
}

func (p *progressView) lines(live *agent.Live) {
	p.each(lineEvery, live, func(v agent.View) {
		fmt.Fprintf(p.out, "%s  %s\n", position(v), describe(v))
	})
}

func (p *progressView) bar(live *agent.Live) {
	w := progress.NewWriter()
	w.SetOutputWriter(p.out)
	w.SetTrackerLength(barWidth)
	// One line, whatever the terminal's width: a line that wraps cannot be redrawn.
	w.SetMessageLength(max(20, p.width()-barWidth-12))
	w.SetUpdateFrequency(barEvery)
	w.SetStyle(progress.StyleBlocks)
	w.Style().Options.Separator = " "
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
	p.each(barEvery, live, func(v agent.View) {
		tracker.UpdateMessage(position(v) + "  " + describe(v))
		if v.End > 0 {
			tracker.SetValue(min(999, int64(1000*v.Offset/v.End)))
		}
	})
}

// width is the terminal's, in columns.
func (p *progressView) width() int {
	if f, ok := p.out.(*os.File); ok {
		if w, _, err := term.GetSize(int(f.Fd())); err == nil {
			return w
		}
	}
	return 100
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
