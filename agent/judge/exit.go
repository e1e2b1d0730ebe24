// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package judge

// The exit codes of a replay. If several apply, the first in this order counts: interrupted, input, invalid, goals missed, ok. So a code of
// 1 means that the engine missed its goals in a measurement that is not invalid; a code of 3 means that goals cannot be judged. Goals and
// failures count even in a run that is too small to judge.
const (
	ExitOK          = 0
	ExitGoals       = 1   // goals missed: goodput below its goal, or errors above their limit
	ExitInput       = 2   // wrong usage, unreadable or refused input
	ExitInvalid     = 3   // the verdict is invalid, or, with --strict-verdict, anything but valid
	ExitInterrupted = 130 // stopped by a signal
)

// Ending has the facts that decide the exit code, in addition to the verdict.
type Ending struct {
	Interrupted bool // stopped by a signal before its end
	InputError  bool // ended by wrong usage or input
	GoalsMissed bool
	Strict      bool // a degraded or undecided run counts as invalid
}

// ExitCode returns the exit code of a run.
func ExitCode(c Class, e Ending) int {
	switch {
	case e.Interrupted:
		return ExitInterrupted
	case e.InputError:
		return ExitInput
	case c == Invalid, c != Valid && e.Strict:
		return ExitInvalid
	case e.GoalsMissed:
		return ExitGoals
	}
	return ExitOK
}
