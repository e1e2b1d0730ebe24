// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import "fmt"

// notices reports the messages of a run as they arise, and collects its warnings for the report. Either function may be nil.
type notices struct {
	onWarn, onNote func(string)
	warnings       []string // all of them
	over           bool     // the schedule has ended: warnings only go to the report
}

// warn adds a warning to the report and, while the run is not over, reports it at once.
func (n *notices) warn(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	n.warnings = append(n.warnings, text)
	if n.onWarn != nil && !n.over {
		n.onWarn(text)
	}
}

// note reports a decision of the run, or what it waits for.
func (n *notices) note(format string, args ...any) {
	if n.onNote != nil {
		n.onNote(fmt.Sprintf(format, args...))
	}
}
