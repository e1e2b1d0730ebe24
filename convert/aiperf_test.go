// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"strings"
	"testing"
)

// TestFileSessions: the bodies in a file are the turns of a session with the file's name, and two files of one name are two sessions. If a
// file has sessions, they are kept.
func TestFileSessions(t *testing.T) {
	const body = `{"messages":[{"role":"user","content":"Name a river."}],"max_tokens":20}` + "\n"
	rows, meta := convert(t, Options{Format: Payloads, Prompts: PromptsKeep, FileSessions: true},
		text("monday/talk.jsonl", body+body), text("tuesday/talk.jsonl.gz", body), text("inputs.json", `{"data":[{"session_id":"s","payloads":[{"messages":[]}]}]}`))
	for session, want := range map[string]int{"talk": 2, "talk-1": 1, "s": 1} {
		if n := strings.Count(rows, `"session_id":"`+session+`"`) + strings.Count(rows, `"session_id": "`+session+`"`); n != want {
			t.Errorf("%d rows of session %s, want %d:\n%s", n, session, want, rows)
		}
	}
	if meta.Rows != 4 {
		t.Errorf("%d rows", meta.Rows)
	}
	if rows, _ = convert(t, Options{Format: Payloads, Prompts: PromptsKeep}, text("talk.jsonl", body)); strings.Contains(rows, "talk") {
		t.Errorf("a session that nobody asked for:\n%s", rows)
	}
}
