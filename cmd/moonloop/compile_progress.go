// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/moonloop/moonloop/capture"
)

// compileProgress shows how far a compile is: one line that changes on a terminal, a line now and then elsewhere.
type compileProgress struct {
	out   io.Writer
	bar   bool
	bytes int64 // of all journals
	every time.Duration
	next  time.Time
	shown bool
}

func newCompileProgress(out io.Writer, mode string, bytes int64) (*compileProgress, error) {
	p := &compileProgress{out: out, bytes: bytes}
	switch mode {
	case "auto":
		f, ok := out.(*os.File)
		p.bar = ok && term.IsTerminal(int(f.Fd()))
	case "bar":
		p.bar = true
	case "lines":
	case "none":
		p.out = io.Discard
	default:
		return nil, fmt.Errorf("--progress %q: want auto, bar, lines or none", mode)
	}
	p.every = lineEvery
	if p.bar {
		p.every = barEvery
	}
	p.next = time.Now().Add(p.every)
	return p, nil
}

// update shows a stage, unless it is too early for that.
func (p *compileProgress) update(stage capture.Stage, done, total int64) {
	now := time.Now()
	if now.Before(p.next) {
		return
	}
	p.next = now.Add(p.every)
	s := fmt.Sprintf("%s: %s of %s", stage, comma(done), comma(total))
	if stage == capture.StageRead {
		s = fmt.Sprintf("%s: %s of %s", stage, size(done), size(p.bytes))
	}
	p.shown = true
	if p.bar {
		fmt.Fprintf(p.out, "\r\x1b[K%s", s)
		return
	}
	fmt.Fprintln(p.out, s)
}

// end takes the line down.
func (p *compileProgress) end() {
	if p.bar && p.shown {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}
