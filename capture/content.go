// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

// attach attaches a content record to its inference span. If batches have divided the log records of one prompt, there are several, of
// which only the first begins where the prompt does.
func (t *tree) attach(i int32) {
	n := &t.nodes[i]
	if n.above < 0 {
		t.lose(n, lostOrphan)
		return
	}
	p := &t.nodes[n.above]
	if p.prompt < 0 {
		p.prompt = i
		return
	}
	first := &t.nodes[p.prompt]
	if n.whole == first.whole {
		t.lose(n, lostSecond)
		if n.start < first.start {
			first.start, p.tied = n.start, false
		}
		return
	}
	t.lose(n, lostPart)
	p.parts = true
	switch {
	case n.start < first.start:
		p.prompt, p.tied = i, false
	case n.start == first.start:
		p.tied = true
	}
}

// choose decides which of the contents of a span is its prompt.
func (t *tree) choose(n *node) {
	switch {
	case n.prompt < 0:
	case n.from[fromPrompt] >= 0:
		t.lose(n, lostSecond) // the span has its prompt itself
	case n.tied:
		t.lose(n, lostPart) // it is unknown which one is the beginning
	default:
		n.from[fromPrompt] = n.prompt
		t.nodes[n.prompt].parts = n.parts
	}
}
