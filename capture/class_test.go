// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/capture/journal"
)

// TestClasses: a row has the class and the priority of its span, else those of the nearest span above it, of any kind, or of the client's
// span of the same request. A row of a replay has those that were sent.
func TestClasses(t *testing.T) {
	of := func(class string, priority int64) func(*journal.Inference) {
		return func(r *journal.Inference) {
			r.Class = name(t, class)
			if priority != 0 {
				r.Priority = opt(priority)
			}
		}
	}
	server := link(1, 9, 0, 0)
	server.Class, server.Priority = name(t, "batch"), opt[int64](4)
	sent := replayed(t, "r", 0, 5, 1, 0, 1)
	of("chat", 2)(sent)
	m, _ := compileBytes(t, Options{}, journalOf(
		server, call(1, 1, 9, 0, engine(1)), call(1, 2, 9, 200, engine(1), of("chat", 0)), call(1, 3, 2, 201, engine(1)),
		call(2, 1, 0, 400, response("a"), of("flex", 7)), call(3, 1, 0, 401, lasting(50), response("a"), engine(1)), call(4, 1, 0, 600, engine(1)), sent,
	))
	for name, want := range map[string][]string{production: {"batch 4", "chat 4", "flex 7", " -"}, "run r": {"chat 2"}} {
		var got []string
		for _, r := range m.rows(t, name) {
			priority := "-"
			if r.Priority.Set {
				priority = fmt.Sprint(r.Priority.V)
			}
			got = append(got, r.Class+" "+priority)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	m, _ = compileBytes(t, Options{Format: FormatMooncake}, journalOf(call(1, 1, 0, 0, of("chat", 2))))
	if r := m.rows(t, production)[0]; r.Class != "" || r.Priority.Set {
		t.Errorf("a plain row has the class %q", r.Class)
	}
}
