// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"slices"

	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/mooncake"
)

// Fields of a leaf that may be filled in from its ancestors.
const (
	fromPrompt = iota
	fromFirstToken
	fromModel
	fromOrder
	fromResponse
	fromInput
	fromOutput
	fromCached
	fromAnswered
	fromEstimate
	fromFinish
	fromCount

	fromAlone = fromResponse // from here on: only from an ancestor of a single leaf
)

// node is a span of the current trace. Indices are those of tree.nodes; -1 means none.
type node struct {
	span, parent journal.SpanID
	session      journal.Session     // its own, or that of the nearest span above it that has one
	run          journal.Name        // likewise
	class        journal.Name        // likewise, together with the priority
	urgent       mooncake.Opt[int64] // the priority
	at           slot                // where the record is; unused for a link

	kind                journal.Kind
	failed, row, warmup bool
	ending              journal.Ending // of a row
	joined, border      bool           // connected by a link; of a tool or an agent
	remote              bool           // a part of its prompt, or of that of a span above it, is only at the server
	broken              bool           // a parent above it is missing
	beside              bool           // its journal directly precedes or follows the compiled ones in time
	below               bool           // there are inference spans below it
	rows                bool           // of a root: a span of its tree has a row index

	up     int32 // parent
	above  int32 // nearest inference span above
	root   int32 // topmost inference span
	prompt int32 // the content record with its prompt
	parts  bool  // there are several content records; prompt is the first
	tied   bool  // and another one has the same time
	start  int64 // 0: unknown; of a content: its time
	end    int64
	offset int64  // added to start and end, to convert them to the clock of the topmost request above
	clock  uint64 // identifies the clock of the topmost request above
	model  journal.Name
	input  int64  // tokens; -1 is unknown
	whole  uint64 // of a content: identifies all of it
	served int32  // leaves at or below it that did not fail
	from   [fromCount]int32

	acts    journal.Actor
	follows []journal.SpanID
	tools   journal.ToolIDs
	bare    bool // a content without a prompt, but with ids of tool calls
}

// tree groups the spans of one trace: steps 1 to 3 within a trace.
type tree struct {
	c     *compiler
	pool  pool
	trace [16]byte
	last  journal.SpanID
	begun bool
	taken []byte // the last record of this span
	large bool   // more spans than the limit: they are processed separately
	// beside is true if the current record is in a journal that precedes or follows the compiled ones; wanted is true if a record of the
	// trace is in a compiled journal.
	beside, wanted bool
	run            journal.Name // of a large trace
	nodes          []node
	ids            int     // of tool calls, in total
	order          []int32 // parents first
	steps          map[int32]*step
	leaf           journal.Decoder
	other          journal.Decoder
	held           int32 // the node whose record is in leaf, unchanged; -1 means none

	state []byte // of link, kept for its memory
	path  []int32
}

// record adds the next record in the order of (trace id, span id, rank).
func (t *tree) record(b []byte) error {
	key, payload := b[:recordKey], b[recordKey:]
	beside := position(key[recordKey-1]) != inCompiled
	if !t.begun || !bytes.Equal(key[:16], t.trace[:]) {
		if err := t.finish(); err != nil {
			return err
		}
		t.begun = true
		copy(t.trace[:], key)
	} else if bytes.Equal(key[16:24], t.last[:]) {
		return t.duplicate(payload, beside)
	}
	t.beside = beside
	t.wanted = t.wanted || !beside
	copy(t.last[:], key[16:])
	t.taken = append(t.taken[:0], payload...)
	d := &t.other
	if journal.Kind(payload[0]) == journal.KindInference || t.large {
		d, t.held = &t.leaf, int32(len(t.nodes)) //nolint:gosec // bounded by MaxTraceSpans
	}
	if err := d.Decode(payload); err != nil {
		return err // cannot happen: the journal's reader has decoded it
	}
	if l := t.c.whole(d); l != (loss{}) && !beside {
		t.c.list[0].lost.add(l, 1) // of production: replays are not completed
	}
	if t.large {
		return t.single()
	}
	return t.keep(d, payload)
}

// duplicate counts another record of the same span, for its run. A copy of an earlier record is not counted for any trace, because a record
// may be in several journals.
func (t *tree) duplicate(payload []byte, beside bool) error {
	if beside {
		return nil
	}
	if bytes.Equal(payload, t.taken) {
		t.c.res.Copies++
		return nil
	}
	t.taken = append(t.taken[:0], payload...)
	err := t.other.Decode(payload)
	if p := t.c.part(Partition{!t.other.Run.IsZero(), t.other.Run}); p != nil {
		p.lost.add(lostDuplicate, 1)
	} else {
		t.c.lost.add(lostDuplicate, 1)
	}
	return err
}

// keep adds a span.
func (t *tree) keep(d *journal.Decoder, payload []byte) (err error) {
	n := node{
		span: t.last, parent: d.Parent, session: d.Session, run: d.Run,
		kind: d.Kind, failed: d.Failed, ending: d.Ending, row: d.Row.Set, warmup: d.Warmup, border: d.Border, remote: d.Remote, beside: t.beside, model: d.Model,
		start: d.Start, end: endOf(&d.Inference), clock: d.Clock, input: -1,
		up: -1, above: -1, root: -1, prompt: -1, acts: d.Acts, follows: d.Follows, class: d.Class, urgent: d.Priority,
	}
	if d.InputTokens.Set {
		n.input = d.InputTokens.V
	}
	if !d.Joined.IsZero() {
		n.parent, n.joined = d.Joined.SpanID, true
	}
	self := int32(len(t.nodes)) //nolint:gosec // bounded by MaxTraceSpans
	for f, set := range fieldsOf(&d.Inference) {
		n.from[f] = -1
		if set {
			n.from[f] = self
		}
	}
	if d.Kind == journal.KindContent {
		n.whole = wholeOf(&d.Prompt)
	}
	n.bare = d.Kind == journal.KindContent && !known(&d.Prompt)
	t.takeTools(&n, &d.Tools)
	if d.Kind != journal.KindLink {
		if n.at, err = t.pool.put(payload); err != nil {
			return err
		}
	}
	t.nodes = append(t.nodes, n)
	if len(t.nodes) > t.c.opt.MaxTraceSpans {
		return t.outgrow()
	}
	return nil
}

// finish groups the trace and emits its requests.
func (t *tree) finish() error {
	if t.wanted {
		t.link()
		t.inherit()
		t.group()
		t.steps = t.graph()
		for i := range t.nodes {
			if t.nodes[i].kind != journal.KindInference || t.nodes[i].beside {
				continue
			}
			if err := t.emit(int32(i)); err != nil {
				return err
			}
		}
	}
	t.clear()
	t.large, t.wanted, t.run = false, false, journal.Name{}
	return nil
}

// lose counts what is left out of a span, unless its journal is not one of the compiled ones.
func (t *tree) lose(n *node, l loss) {
	if !n.beside {
		t.c.lost.add(l, 1)
	}
}

func (t *tree) clear() {
	clear(t.nodes)
	t.nodes, t.order, t.steps, t.ids, t.held = t.nodes[:0], t.order[:0], nil, 0, -1
	t.pool.reset()
}

// link finds the parents, and an order of spans with parents first. It cuts cycles of parents.
func (t *tree) link() {
	const (
		untouched = iota
		onPath
		done
	)
	for i := range t.nodes {
		n := &t.nodes[i]
		if n.parent == (journal.SpanID{}) {
			continue
		}
		at, ok := t.find(n.parent)
		if n.joined && (!ok || !t.during(at, n)) {
			n.parent = journal.SpanID{} // a link to the span that it follows, or to a span that was not sent
			continue
		}
		if n.broken = !ok; ok {
			n.up = int32(at) //nolint:gosec // bounded by MaxTraceSpans
		}
	}
	state, path := slices.Grow(t.state[:0], len(t.nodes))[:len(t.nodes)], t.path
	clear(state)
	cut := int64(0)
	for i := range t.nodes {
		path = path[:0]
		at := int32(i)
		for at >= 0 && state[at] == untouched {
			state[at] = onPath
			path = append(path, at)
			at = t.nodes[at].up
		}
		if at >= 0 && state[at] == onPath {
			for i := slices.Index(path, at); i < len(path); i++ {
				t.nodes[path[i]].up, t.nodes[path[i]].broken = -1, true
				cut++
			}
		}
		for _, at := range slices.Backward(path) {
			state[at] = done
			t.order = append(t.order, at)
		}
	}
	t.state, t.path = state, path
	t.c.lost.add(lostCycle, cut)
}

// during reports whether a request with a link to a span may be a part of it: it begins during the span, or during the request above that
// span.
func (t *tree) during(at int, part *node) bool {
	const steps = 64
	for range steps {
		if n := &t.nodes[at]; n.kind == journal.KindInference {
			return part.start >= n.start-sameClock && part.start <= n.end+sameClock
		}
		var ok bool
		if at, ok = t.find(t.nodes[at].parent); !ok {
			break
		}
	}
	return false
}

// find returns the index of a span.
func (t *tree) find(id journal.SpanID) (int, bool) {
	return slices.BinarySearchFunc(t.nodes, id, func(n node, id journal.SpanID) int { return bytes.Compare(n.span[:], id[:]) })
}

// inherit passes sessions, runs, classes and priorities down from the spans that have them. It also finds the nearest inference span above
// each span, and the topmost one.
func (t *tree) inherit() {
	run, one := t.oneRun()
	for _, i := range t.order {
		n := &t.nodes[i]
		if n.up >= 0 {
			p := &t.nodes[n.up]
			switch {
			case p.kind == journal.KindInference:
				n.above = n.up
			case !p.border:
				n.above = p.above
			}
			if n.session == 0 {
				n.session = p.session
			}
			if n.run.IsZero() {
				n.run = p.run
			}
			if n.class.IsZero() {
				n.class = p.class
			}
			if !n.urgent.Set {
				n.urgent = p.urgent
			}
			n.broken = n.broken || p.broken
		}
		if n.run.IsZero() && n.broken && one {
			n.run = run
		}
		if n.kind == journal.KindInference {
			n.root = i
			if n.above >= 0 {
				n.root = t.nodes[n.above].root
			}
		}
	}
}

// oneRun returns the run of the trace's spans, if they all have the same one.
func (t *tree) oneRun() (run journal.Name, one bool) {
	for i := range t.nodes {
		switch r := t.nodes[i].run; {
		case r.IsZero() || r == run:
		case run.IsZero():
			run, one = r, true
		default:
			return journal.Name{}, false
		}
	}
	return run, one
}

// group finds leaves, and the spans from which their missing fields are filled in.
func (t *tree) group() {
	for _, i := range slices.Backward(t.order) {
		switch n := &t.nodes[i]; n.kind {
		case journal.KindInference:
			if !n.below && !n.failed {
				n.served = 1
			}
			t.nodes[n.root].rows = t.nodes[n.root].rows || n.row
			if n.above >= 0 {
				p := &t.nodes[n.above]
				p.below = true
				p.served = min(p.served+n.served, 2) // one, or several
			}
		case journal.KindContent:
			if !n.bare {
				t.attach(i)
			}
		case journal.KindLink:
		}
	}
	for _, i := range t.order {
		n := &t.nodes[i]
		if n.kind != journal.KindInference {
			continue
		}
		t.choose(n)
		t.timed(n)
		if n.above < 0 {
			continue
		}
		p := &t.nodes[n.above]
		n.remote = n.remote || p.remote
		for f, from := range p.from {
			if n.from[f] < 0 && (f < fromAlone || p.served <= 1) {
				n.from[f] = from
			}
		}
	}
}

// enter counts an inference span for its partition, and returns the partition. It returns nil, with the reason counted, if the span cannot
// be in a trace. unwanted: the span's trace is not wanted; this is counted, too.
func (c *compiler) enter(key Partition, warmup bool) (p *partition, unwanted bool) {
	if p = c.part(key); p == nil {
		c.lost.add(lostRun, 1)
		return nil, false
	}
	p.Spans++
	switch {
	case !p.wanted(c.opt.Replays):
		p.lost.add(lostPolicy, 1)
		return p, true
	case warmup:
		p.lost.add(lostWarmup, 1)
		return nil, false
	}
	return p, false
}

// emit passes on an inference span.
func (t *tree) emit(i int32) error {
	n := &t.nodes[i]
	rows := t.nodes[n.root].rows
	p, unwanted := t.c.enter(Partition{rows || !n.run.IsZero(), n.run}, n.warmup)
	switch {
	case p == nil, unwanted && (rows && !n.row || !p.Replay):
		return nil
	case unwanted:
	case rows && !n.row, !p.Replay && n.below:
		p.Merged++
		return nil
	case p.Replay && !n.row:
		p.lost.add(lostNoRow, 1) // other spans may show the request
	case n.failed:
		p.lost.add(lossOf(n.ending), 1)
	}
	r, err := t.request(i)
	if err != nil {
		return err
	}
	return t.c.request(p, r)
}

// request returns an inference span with its missing fields filled in. A span with a row index is not changed.
func (t *tree) request(i int32) (*journal.Inference, error) {
	n := &t.nodes[i]
	if t.held != i { // else it is already decoded
		if err := t.load(n, &t.leaf); err != nil {
			return nil, err
		}
	}
	r := &t.leaf
	t.held = -1
	r.Session, r.Run, r.Remote, r.Class, r.Priority = n.session, journal.Name{}, n.remote, n.class, n.urgent
	r.Follows, r.Step = nil, journal.Step{}
	if s := t.steps[i]; s != nil {
		r.Step = s.Step
		r.Tools.Made, r.Tools.Given = s.made[:min(len(s.made), journal.MaxToolIDs)], s.open[:min(len(s.open), journal.MaxToolIDs)]
	} else if len(t.nodes) > 1 {
		r.Tools = journal.ToolIDs{}
	}
	if r.Session == 0 || !t.c.graphs() { // without a session, it has no connection to other traces
		r.Tools = journal.ToolIDs{}
	}
	if n.row {
		return &r.Inference, nil
	}
	if n.offset != 0 {
		shift(&r.Inference, n.offset, n.clock)
	}
	loaded := i
	for f, from := range n.from {
		if from < 0 || from == i {
			continue
		}
		if from != loaded {
			if err := t.load(&t.nodes[from], &t.other); err != nil {
				return nil, err
			}
			loaded = from
		}
		fill(r, f, &t.other.Inference)
		if f == fromPrompt && t.nodes[from].kind == journal.KindContent {
			r.Prefix = r.Prefix || t.nodes[from].parts
		}
	}
	for above := n.above; above >= 0; above = t.nodes[above].above {
		// A span with other token counts may contain several requests.
		if p := &t.nodes[above]; p.input <= 0 || n.input <= 0 || p.input == n.input {
			t.c.models.said(p.model, modelOf(&r.Inference))
		}
	}
	t.c.models.said(r.Model, r.Answered)
	return &r.Inference, nil
}

func (t *tree) load(n *node, d *journal.Decoder) error {
	b, err := t.pool.get(n.at)
	if err != nil {
		return err
	}
	err = d.Decode(b)
	t.c.whole(d)
	return err
}

// fieldsOf returns the fields that a request has.
func fieldsOf(r *journal.Inference) [fromCount]bool {
	return [fromCount]bool{
		fromPrompt: known(&r.Prompt), fromFirstToken: r.FirstToken.Set, fromModel: !r.Model.IsZero(),
		fromResponse: r.Response != journal.Response{}, fromInput: r.InputTokens.V > 0, fromOutput: r.OutputTokens.Set,
		fromCached: r.CachedTokens.Set, fromAnswered: !r.Answered.IsZero(), fromEstimate: r.OutputEstimate.Set,
		fromFinish: !r.Finish.IsZero(), fromOrder: r.Order != "",
	}
}

// fill copies a field of another span.
func fill(r *journal.Decoder, field int, o *journal.Inference) {
	switch field {
	case fromPrompt:
		r.SetPrompt(&o.Prompt)
	case fromFirstToken:
		r.FirstToken = o.FirstToken
	case fromModel:
		r.Model = o.Model
	case fromResponse:
		r.Response = o.Response
	case fromInput:
		r.InputTokens = o.InputTokens
	case fromOutput:
		r.OutputTokens = o.OutputTokens
	case fromCached:
		r.CachedTokens = o.CachedTokens
	case fromAnswered:
		r.Answered = o.Answered
	case fromEstimate:
		r.OutputEstimate = o.OutputEstimate
	case fromFinish:
		r.Finish = o.Finish
	case fromOrder:
		r.Order = o.Order
	}
}

// outgrow gives up the ancestry of a trace: its spans so far are processed separately.
func (t *tree) outgrow() error {
	t.large = true
	t.run, _ = t.oneRun()
	t.c.lost.add(lostAncestry, 1)
	for i := range t.nodes {
		n := t.nodes[i]
		if n.kind == journal.KindLink {
			continue
		}
		if err := t.load(&n, &t.leaf); err != nil {
			return err
		}
		t.beside = n.beside
		if err := t.single(); err != nil {
			return err
		}
	}
	t.clear()
	return nil
}

// single emits the span in t.leaf alone.
func (t *tree) single() error {
	d := &t.leaf
	if t.beside {
		return nil
	}
	switch d.Kind {
	case journal.KindContent:
		t.c.lost.add(lostOrphan, 1)
		return nil
	case journal.KindLink:
		return nil
	case journal.KindInference:
	}
	run := d.Run
	if run.IsZero() {
		run = t.run
	}
	p, unwanted := t.c.enter(Partition{d.Row.Set || !run.IsZero(), run}, d.Warmup)
	switch {
	case p == nil, unwanted && !p.Replay:
		return nil
	case unwanted:
	case p.Replay && !d.Row.Set:
		p.lost.add(lostNoRow, 1) // other spans may show the request
	case d.Failed:
		p.lost.add(lossOf(d.Ending), 1)
	}
	d.Run = journal.Name{}
	if d.Step.Turn = endless(&d.Inference); d.Session == 0 || !t.c.graphs() {
		d.Step, d.Tools = journal.Step{}, journal.ToolIDs{}
	}
	return t.c.request(p, &d.Inference)
}
