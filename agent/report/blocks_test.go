// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strings"
	"testing"

	"github.com/moonloop/moonloop/agent/measure"
)

// TestHostileNames: names from a trace or an engine never reach a terminal as commands.
func TestHostileNames(t *testing.T) {
	const hostile = "\x1b[31mred"
	r := Report{figures: &measure.Figures{
		Classes: []measure.ClassFigures{{Class: hostile}, {}},
		Servers: []measure.ServerFigures{{Server: hostile}},
	}}
	text := strings.Join(append(r.classLines(), r.engineLines()...), "\n")
	if strings.Contains(text, "\x1b") || strings.Count(text, `\x1b[31mred: `) != 2 || !strings.Contains(text, "(none): ") {
		t.Errorf("%q", text)
	}
}
