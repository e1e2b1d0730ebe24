// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"bytes"
	"regexp"
	"testing"
)

// machinePath matches absolute paths of a developer's machine, which are useless to anybody else.
var machinePath = regexp.MustCompile("(^|[\\s\"'`(=:,])/(work|workspace|builds|root|home/[a-z]+|Users/[A-Za-z]+)/")

// TestNoMachinePaths searches every text file, documentation and fixtures included.
func TestNoMachinePaths(t *testing.T) {
	eachFile(t, func(name string, content []byte) {
		if bytes.IndexByte(content, 0) >= 0 {
			return // not a text
		}
		for i, line := range bytes.Split(content, []byte("\n")) {
			if match := machinePath.Find(line); match != nil {
				t.Errorf("%s:%d names a place on somebody's machine: %s; name it from the repository's root", name, i+1, match)
			}
		}
	})
}

func TestMachinePath(t *testing.T) {
	slash := "/" // keeps the lines below from matching themselves
	for text, want := range map[string]bool{
		"see " + slash + "home/alice/trace.jsonl": true,
		"dir=" + slash + "root/x":                 true,
		"`" + slash + "work/main/x`":              true,
		"../shared/data/conversation_trace.jsonl": false,
		"https://example.com/work/item":           false,
		"examples/home/alice":                     false,
		"$HOME/.cache":                            false,
	} {
		if got := machinePath.MatchString(text); got != want {
			t.Errorf("%q: found %v, want %v", text, got, want)
		}
	}
}
