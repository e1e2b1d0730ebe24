// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"time"
	"unicode/utf8"
)

// captureView shows a capture under way: one line that changes on a terminal, a line now and then elsewhere.
type captureView struct {
	*progressView
	shown time.Duration // when a line was written last
	drawn bool          // a line is on the screen
}

func newCaptureView(out io.Writer, mode string) *captureView {
	return &captureView{progressView: newProgress(out, mode)}
}

// show shows the state at a time since the start. Call it often.
func (v *captureView) show(elapsed time.Duration, state string) {
	text := fmt.Sprintf("%s  %s", elapsed.Truncate(time.Second), state)
	switch v.mode {
	case "bar":
		// One line, whatever the terminal's width: a line that wraps cannot be redrawn.
		if width := v.width() - 1; utf8.RuneCountInString(text) > width {
			text = string([]rune(text)[:max(0, width)])
		}
		fmt.Fprintf(v.out, "\r\x1b[K%s", text)
		v.drawn = true
	case "lines":
		if elapsed-v.shown >= lineEvery {
			v.shown = elapsed
			fmt.Fprintln(v.out, text)
		}
	}
}

// stop leaves the last state on the screen.
func (v *captureView) stop() {
	v.progressView.stop()
	if v.drawn {
		fmt.Fprintln(v.out)
	}
}
