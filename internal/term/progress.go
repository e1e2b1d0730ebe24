// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package term

import (
	"fmt"
	"io"
	"math"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

const (
	barWidth  = 20 // columns
	leastBar  = 5
	separator = " · "
	barEvery  = 250 * time.Millisecond
	lineEvery = 10 * time.Second
	clearLine = "\r\x1b[K"
)

// Progress shows work under way: one line that changes on a terminal, a line from time to time elsewhere.
type Progress struct {
	out  io.Writer
	mode string
	look func() (text string, part float64)

	quit chan struct{}
	gone sync.WaitGroup
}

// NewProgress returns the view for a mode: bar, lines, none, or auto, which is a bar on a terminal and lines elsewhere.
func NewProgress(out io.Writer, mode string) *Progress {
	if mode == "auto" {
		mode = "lines"
		if IsInteractive(out) {
			mode = "bar"
		}
	}
	return &Progress{out: out, mode: mode, quit: make(chan struct{})}
}

// Show calls look again and again until [Progress.Stop], in a goroutine of its own, and shows what it returns: a text, which may be empty
// as long as there is nothing to say, and the part of the work that is done, from 0 to 1; below 0 if unknown.
func (p *Progress) Show(look func() (text string, part float64)) {
	p.look = look
	switch p.mode {
	case "bar":
		p.gone.Go(func() { p.each(barEvery, p.bar) })
	case "lines":
		p.gone.Go(func() { p.each(lineEvery, p.line) })
	}
}

// Stop ends the view, even one that showed nothing. If keep is set, the last state stays on a terminal. Call it once.
func (p *Progress) Stop(keep bool) {
	close(p.quit)
	p.gone.Wait()
	switch {
	case p.mode != "bar" || p.look == nil:
	case keep:
		p.bar()
		fmt.Fprintln(p.out)
	default:
		fmt.Fprint(p.out, clearLine)
	}
}

func (p *Progress) each(every time.Duration, show func()) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-p.quit:
			return
		case <-tick.C:
			show()
		}
	}
}

// line writes the current text on its own line.
func (p *Progress) line() {
	if text, _ := p.look(); text != "" {
		fmt.Fprintln(p.out, text)
	}
}

// bar draws the line again. It is one line, whatever the terminal's width: a line that wraps cannot be redrawn. If there is no room, first
// most of the bar is left out, then the last parts of the text.
func (p *Progress) bar() {
	text, part := p.look()
	width, tail := max(0, Width(p.out)-1), ""
	if part >= 0 {
		percent := fmt.Sprintf(" %3.0f%%", 100*min(part, 1))
		columns := min(max(width-utf8.RuneCountInString(text)-1-len(percent), leastBar), barWidth)
		done := int(math.Round(min(part, 1) * float64(columns)))
		tail = " " + strings.Repeat("█", done) + strings.Repeat("░", columns-done) + percent
		width = max(0, width-utf8.RuneCountInString(tail))
	}
	fmt.Fprint(p.out, clearLine, shorten(text, width), tail)
}

// shorten leaves out the last parts of a text, which separators divide, until it fits; of a single part it keeps the beginning.
func shorten(text string, width int) string {
	for utf8.RuneCountInString(text) > width {
		i := strings.LastIndex(text, separator)
		if i < 0 {
			return string([]rune(text)[:width])
		}
		text = text[:i]
	}
	return text
}
