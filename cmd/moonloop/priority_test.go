// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// classTrace has rows with classes, as several tools write them, each of a different length.
const classTrace = `{"timestamp":0,"input_length":601,"output_length":2,"class":"chat"}
{"timestamp":10,"input_length":602,"output_length":2,"policy_class":"batch","priority":4}
{"timestamp":20,"input_length":603,"output_length":2,"slo_class":"batch"}
{"timestamp":30,"input_length":604,"output_length":2,"priority":-7}
{"timestamp":40,"input_length":605,"output_length":2,"class":"other","priority":2}
{"timestamp":50,"input_length":606,"output_length":2,"class":"batch","extra":{"priority":99}}
`

// TestPriorityArrives: the engine gets the priorities of the rows or of their classes, and every output has the figures of each class.
func TestPriorityArrives(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		flags []string
		want  string // the priorities by row
		said  []string
	}{
		{"the rows' own priorities", nil, "- 4 - -7 2 99", []string{"priority: 3 rows of the first rows have their own"}},
		{"priorities of two classes", []string{"--priority", "batch=10", "--priority", "chat=-1"}, "-1 10 10 -7 2 99", []string{"priority: 2 rows of the first rows have their own"}},
		{"one priority for all other classes", []string{"--priority", "batch=10", "--priority", "*=0"}, "0 10 10 0 0 99", nil},
		{"an engine that accepts no priority", []string{"--profile", "openai"}, "- - - - - 99", []string{"warning: priority: 3 rows of the first rows have their own priority, which is not sent: engines of profile openai accept none at this endpoint"}},
		{"an unknown class", []string{"--priority", "chat=1", "--priority", "gold=3"}, "1 4 - -7 2 99", []string{`warning: priority: none of the first rows is of the class "gold"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"replay", "TRACE", "--url", "ENGINE", "--model", "sim", "--overhead", "1", "--out", "DIR/run", "--slo", "ttft=1m"}, c.flags...)
			r := begin(t, classTrace, args)()
			if r.status != exitOK && r.status != exitInvalid { // which happens on a busy machine
				t.Fatalf("status %d: %s", r.status, r.said)
			}
			var got []string
			slices.SortFunc(r.seen, func(a, b *arrived) int { return strings.Compare(rowOf(a), rowOf(b)) })
			for _, a := range r.seen {
				got = append(got, strings.ReplaceAll(fmt.Sprint(a.body["priority"]), "<nil>", "-"))
			}
			if d := cmp.Diff(c.want, strings.Join(got, " ")); d != "" {
				t.Errorf("priorities that arrived (-want +got):\n%s", d)
			}
			said := strings.Join(strings.Fields(r.said), " ")
			for _, want := range c.said {
				if !strings.Contains(said, want) {
					t.Errorf("not said: %s\n%s", want, said)
				}
			}
			if strings.Contains(said, "priority: ") != (c.said != nil) {
				t.Errorf("said: %s", said)
			}
			if c.name != "priorities of two classes" {
				return
			}
			for _, want := range []string{"Classes (none) (priority -7): 1 requests, 1 served, 0 failed; TTFT p50 ", "100 % within the service level", "batch: 3 requests, 3 served", "chat (priority -1): 1 requests"} {
				if out := strings.Join(strings.Fields(r.out), " "); !strings.Contains(out, want) {
					t.Errorf("the table has no %q:\n%s", want, r.out)
				}
			}
			for file, parts := range map[string][]string{
				"summary.json": {`"classes": [`, `"class": "batch",`, `"priority": -1,`, `"good_requests": 3,`},
				"summary.csv":  {"Class batch: Request Count (requests),3.00,", "Class (none): Time to First Token (ms),", "Class chat: Request Latency (ms),"},
				"report.html":  {"<h3>Classes</h3>", `<th scope="row">chat</th><td class="n">-1</td><td class="n">1</td>`, `<th scope="row">batch</th><td class="n">–</td><td class="n">3</td>`},
				// The rows keep their own priority, so that they can be replayed with others.
				"requests.jsonl": {`"class": "batch", "priority": 4, "result": {`, `"class": "chat", "result": {`, `"priority":10`},
			} {
				text, err := os.ReadFile(filepath.Join(r.dir, "run", file))
				if err != nil {
					t.Fatal(err)
				}
				for _, part := range parts {
					if !strings.Contains(string(text), part) {
						t.Errorf("%s has no %s", file, part)
					}
				}
			}
		})
	}
}

// rowOf returns the end of a request's id, which identifies its row.
func rowOf(a *arrived) string {
	id := a.header.Get("X-Request-Id")
	return id[strings.LastIndexByte(id, '-'):]
}
