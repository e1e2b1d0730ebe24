// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package genai

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
)

// flatEntry is an attribute such as llm.input_messages.0.message.role, without the prefix.
type flatEntry struct {
	path  string // the rest of the path
	value pcommon.Value
}

// loadFlat converts the attributes with a prefix to nested arrays and objects. A missing index in between is a gap; one at the end cannot
// be detected.
func (t *tree) loadFlat(attributes pcommon.Map, prefix string) {
	entries := t.entries[:0]
	for key, value := range attributes.All() {
		if rest, ok := strings.CutPrefix(key, prefix); ok && isIndexed(rest) && len(rest) <= maxValueBytes {
			entries = append(entries, flatEntry{rest, value})
		}
	}
	slices.SortStableFunc(entries, func(a, b flatEntry) int { return comparePaths(a.path, b.path) })
	t.reset()
	if len(entries) > 0 {
		t.addLevel(entries, 0)
	}
	t.entries = entries
}

// isIndexed reports whether the path after the prefix of flattened messages begins with an index.
func isIndexed(path string) bool { return path != "" && path[0] >= '0' && path[0] <= '9' }

// addLevel appends the container for sorted entries.
func (t *tree) addLevel(entries []flatEntry, depth int) {
	if t.full() || depth == maxDepth {
		t.cut = true
		t.add(node{})
		return
	}
	container := t.add(node{kind: nodeObject})
	for position := 0; len(entries) > 0; position++ {
		name, _, _ := strings.Cut(entries[0].path, ".")
		index, numeric := flatIndex(name)
		if numeric && position == 0 {
			t.nodes[container].kind = nodeArray
		}
		array := t.nodes[container].kind == nodeArray
		if array && (!numeric || index != position) {
			t.gaps = true
			if !numeric {
				break
			}
			position = index
		}
		same := 0
		for same < len(entries) && below(entries[same].path, name) {
			same++
		}
		if t.full() {
			break
		}
		if !array {
			t.add(node{kind: nodeString, text: name})
		}
		if entries[0].path == name { // a value; entries below the same name are lost
			t.addValue(entries[0].value, depth+1)
		} else {
			for i := range entries[:same] {
				entries[i].path = entries[i].path[len(name)+1:]
			}
			t.addLevel(entries[:same], depth+1)
		}
		entries = entries[same:]
	}
	t.close(container)
}

func below(path, name string) bool {
	return strings.HasPrefix(path, name) && (len(path) == len(name) || path[len(name)] == '.')
}

// flatIndex parses a component that is an index.
func flatIndex(name string) (int, bool) {
	if !isIndexed(name) || len(name) > 7 {
		return 0, false
	}
	n, err := strconv.Atoi(name)
	return n, err == nil
}

// comparePaths compares by component: indices by value and before names.
func comparePaths(a, b string) int {
	for {
		nameA, restA, moreA := strings.Cut(a, ".")
		nameB, restB, moreB := strings.Cut(b, ".")
		if nameA != nameB {
			indexA, okA := flatIndex(nameA)
			indexB, okB := flatIndex(nameB)
			return cmp.Or(b2i(okB)-b2i(okA), indexA-indexB, strings.Compare(nameA, nameB))
		}
		if !moreA || !moreB {
			return b2i(moreA) - b2i(moreB)
		}
		a, b = restA, restB
	}
}
