// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/mooncake"
)

// An engine's counts of cached tokens show whether it saw prompts in a different order than telemetry shows: it had cached far less than
// prompts share in telemetry's order, and as much as they share in the other order. So if production's counts are predicted too high, the
// prompts of the model are written in each order that would change them, and an order that explains nearly all counts is followed.
// Eviction, several replicas and other tenants leave gaps that no order explains. An order that the capture was configured with is followed
// without proof.

// FollowEngine says whether a trace follows an engine that saw prompts in a different order than telemetry shows.
type FollowEngine string

// The choices. The zero FollowEngine is FollowAuto.
const (
	FollowAuto  FollowEngine = "auto"  // if requests name an order, or the engine's counts of cached tokens prove one
	FollowNever FollowEngine = "never" // prompts stay in telemetry's order
)

const (
	// leastCounts is the minimum number of counts of a model that are evidence: with fewer, provedPercent would allow no unexplained count.
	leastCounts = 20
	// doubtPercent is the excess of a prediction over the engine's counts, as a share of the prompt tokens, above which other orders are
	// tried, and a trace warns.
	doubtPercent = 2
	// provedPercent is the share of the counts that a followed order must explain.
	provedPercent = 95
	// leastFits is the minimum number of counts that show how many tokens the heads of prompts have: with fewer, any order could be made to
	// fit.
	leastFits = 3
	// finestStep is the step of the finest engines, in tokens. Engines that count each token are compared in this step, because the
	// positions of tokens in text are not known exactly.
	finestStep = 16
)

// modelEngine is what is known of the engine of a template, from its counts of cached tokens.
type modelEngine struct {
	template
	rows  int64 // rows with such a count
	step  int64 // greatest common divisor of the counts; 0 if all are 0
	most  int64 // the greatest count
	heads heads // at the beginning of prompts that have a user message later
	// Tokens of those rows: of their prompts, cached, and predicted by telemetry's order.
	input, cached, predicted int64
	foreign                  bool // more than a block was cached of a prompt that begins like no other one, in any order

	order     journal.PromptOrder // the order that is followed because it was stated or proved; empty: telemetry's
	explained int64               // counts explained by the followed order, or by the one that was tried last
	foretold  int64               // tokens that this order predicts
	beyond    bool                // one count was more than this order explains
}

// block returns the number of tokens that the engine caches as one block, as far as its counts show it: a few equal counts do not.
func (e *modelEngine) block() int64 {
	if e.most < 4*e.step {
		return finestStep
	}
	return max(e.step, finestStep)
}

// doubtful reports whether telemetry's order predicts more sharing than the engine had.
func (e *modelEngine) doubtful() bool {
	return e.order == "" && e.rows >= leastCounts && e.cached > 0 && 100*(e.predicted-e.cached) > doubtPercent*e.input
}

// mayBe reports whether the engine may have seen prompts in an order. An order that moves two things is not tried if there is only one.
func (e *modelEngine) mayBe(o journal.PromptOrder) bool {
	return e.doubtful() && !e.foreign && e.heads&movedBy(o) == movedBy(o)
}

// takes reports whether rows are written in an order: because it was stated, or to test whether it explains the counts.
func (e *modelEngine) takes(o journal.PromptOrder) bool { return e.told == o || e.mayBe(o) }

// proved reports whether the tried order explains the counts.
func (e *modelEngine) proved() bool {
	off := e.foretold - e.cached
	return !e.beyond && 100*e.explained >= provedPercent*e.rows && 100*max(off, -off) <= doubtPercent*e.input
}

// engines has the engines of all models with counts of cached tokens, or with a stated order.
type engines struct {
	of   map[template]int
	list []modelEngine
}

// count adds the count of cached tokens of a request, if it has one, or else records that its order was stated.
func (e *engines) count(of template, r *journal.Inference) {
	cached, ok := cachedCount(r)
	if r.Identity != journal.Text || !ok && of.told == "" {
		return
	}
	at, known := e.of[of]
	if !known {
		if len(e.list) == maxModels {
			return
		}
		if e.of == nil {
			e.of = map[template]int{}
		}
		at = len(e.list)
		e.of[of] = at
		e.list = append(e.list, modelEngine{template: of, order: of.told})
	}
	if !ok {
		return
	}
	one := &e.list[at]
	one.rows++
	one.most = max(one.most, cached)
	one.step = mooncake.CommonStep(one.step, cached)
}

// cachedCount returns the engine's count of cached tokens of a prompt whose whole text is known.
func cachedCount(r *journal.Inference) (tokens int64, ok bool) {
	n := r.CachedTokens
	return n.V, n.Set && r.InputTokens.Set && n.V >= 0 && n.V <= r.InputTokens.V && !r.Prefix
}

// saw compares a count with the prompt's shared tokens in telemetry's order.
func (e *engines) saw(c *compiler, t *text, o *laidOut, s *sharing, common int) {
	cached, ok := cachedCount(&t.Inference)
	if len(e.list) == 0 || !ok || t.Identity != journal.Text {
		return
	}
	at, known := e.of[c.template(&t.Inference)]
	if !known {
		return
	}
	one := &e.list[at]
	one.input += o.tokens
	one.cached += cached
	one.predicted += s.hit(o, cached, int64(c.fine), one.block())
	one.foreign = one.foreign || common == 0 && len(o.turns) == 0 && cached/one.block() > 1
	if outline, ok := outlineOf(&t.Prompt); ok {
		one.heads |= outline.movable()
	}
}

// hit returns how many tokens of a prompt an engine would have had in its cache, in blocks, after all earlier rows, given the engine's count.
func (s *sharing) hit(o *laidOut, cached, fine, block int64) int64 {
	shared := int64(0)
	for _, p := range s.parts {
		if p.first != s.number {
			shared = p.depth
		}
	}
	if shared > 0 {
		shared = max(shared, min(cached/fine, s.limit)) // as in the ledger
	}
	shared *= fine
	for _, t := range o.turns {
		shared = max(shared, t.end()-1)
	}
	return min(shared, o.tokens-1) / block * block
}

// follow finds the engines that saw prompts in another order, and computes what their rows then share.
func (c *compiler) follow(turns, steps *sorter) error {
	for _, order := range promptOrders {
		if !c.engines.take(order) {
			continue
		}
		if err := c.try(order, turns, steps); err != nil {
			return err
		}
	}
	return nil
}

// take reports whether rows of any engine are written in an order.
func (e *engines) take(order journal.PromptOrder) bool {
	return slices.ContainsFunc(e.list, func(one modelEngine) bool { return one.takes(order) })
}

// try tests whether engines have seen prompts in this order.
func (c *compiler) try(order journal.PromptOrder, turns, steps *sorter) error {
	by := newSorter(c.opt.TempDir, c.opt.Memory/8)
	defer by.close()
	var d turned
	err := c.layer(turns, steps, func(t *text, o *laidOut, _ []part) error {
		at, known := c.engines.of[c.template(&t.Inference)]
		if !known || t.Identity != journal.Text || t.arrival.order == never || !c.engines.list[at].takes(order) {
			return nil
		}
		if _, ok := outlineOf(&t.Prompt); ok && o.whole {
			d.turn(order, t, o.ends)
		} else { // the position of the last user message in it is unknown: it shares nothing
			d.marks, d.fit = d.marks[:0], fit{bounds: d.bounds[:0]}
			d.out = laidOut{tokens: o.tokens, ends: d.out.ends[:0], turns: d.out.turns[:0]}
		}
		d.arrival, d.model, d.cached = t.arrival, at, -1
		if cached, ok := cachedCount(&t.Inference); ok {
			d.cached = cached
		}
		c.enc = d.appendTo(c.enc[:0])
		return by.add(d.marks, c.enc)
	})
	if err != nil || by.empty() {
		return err
	}
	first := newSorter(c.opt.TempDir, c.opt.Memory/8)
	defer first.close()
	s := c.surveyTo(first)
	if err := c.turnedTexts(by, nil, func(d *turned) error { return s.add(&d.laid) }); err != nil {
		return err
	}
	if err := s.close(0); err != nil {
		return err
	}
	right, err := c.fitHeads(by, first)
	if err != nil {
		return err
	}
	for i := range c.engines.list {
		if e := &c.engines.list[i]; e.takes(order) {
			e.explained, e.foretold, e.beyond = 0, 0, false
		}
	}
	err = c.turnedLayer(by, first, right, func(d *turned, s *sharing, common int) error {
		if d.cached < 0 {
			return nil
		}
		e := &c.engines.list[d.model]
		slack := int64(0)
		if g, ok := d.guessOf(common, d.out.ends); common > 0 && (ok || common <= d.to) {
			if _, fitted := right[g.key]; !fitted { // an error of a guess is not evidence against the order
				slack = max(g.tokens, d.out.ends[common-1]) / 2
			}
		}
		block := e.block()
		hit := s.hit(&d.out, d.cached, int64(c.fine), block)
		e.foretold += hit
		switch off := hit - d.cached/block*block; {
		case off < -block:
			e.beyond = e.beyond || off < -block-slack
		case off <= block:
			e.explained++
		}
		return nil
	})
	if err != nil {
		return err
	}
	proved := false
	for i := range c.engines.list {
		if e := &c.engines.list[i]; e.told == order || e.mayBe(order) && e.proved() {
			e.order, proved = order, true
		}
	}
	if !proved {
		return nil
	}
	return c.turnedLayer(by, first, right, func(d *turned, s *sharing, _ int) error {
		if c.engines.list[d.model].order == "" {
			return nil
		}
		c.enc = s.appendTo(c.enc[:0])
		return c.followed.add(d.order[:], c.enc)
	})
}

// fits are the engine's counts of how many more tokens heads have than was guessed.
type fits struct {
	more []int32
	less bool // as in guess
	told bool // the order was stated
}

// right returns how many more tokens the heads have; ok is false if too few counts show it. If there are too few for a median, the count
// with the most cached tokens decides, because an engine may lack blocks, but has none that a prompt does not share.
func (f *fits) right() (more int64, ok bool) {
	n := len(f.more)
	slices.Sort(f.more)
	switch {
	case n >= leastFits:
		return int64(f.more[n/2]), true
	case !f.told:
		return 0, false
	case f.less:
		return int64(f.more[0]), true
	default:
		return int64(f.more[n-1]), true
	}
}

// fitHeads returns how many more tokens heads have than was guessed, by their keys: if prompts diverge after the heads, or directly at
// their end, the engine's counts show it, to a block.
func (c *compiler) fitHeads(by, first *sorter) (map[uint64]int64, error) {
	found := map[uint64]*fits{}
	err := c.turnedLayer(by, first, nil, func(d *turned, s *sharing, common int) error {
		if d.cached <= 0 || common == 0 {
			return nil
		}
		g, ok := d.guessOf(common, d.out.ends)
		e := &c.engines.list[d.model]
		more, most := d.cached+e.block()/2-d.out.ends[common-1], g.tokens/2 // more only if the engine lacked something else
		if e.told != "" {
			most = g.tokens // the order needs no proof, and guesses are far off if heads and question are in different languages
		}
		if g.less {
			more = -more
		}
		if ok && more >= -most && more <= most {
			one := found[g.key]
			if one == nil {
				one = &fits{less: g.less, told: e.told != ""}
				found[g.key] = one
			}
			one.more = append(one.more, int32(more)) //nolint:gosec // at most MaxTokens
		}
		return nil
	})
	right := map[uint64]int64{}
	for key, one := range found {
		if more, ok := one.right(); ok {
			right[key] = more
		}
	}
	return right, err
}

// turnedTexts visits all prompts of a sorter in the order of their marks, after adding this many tokens to the guess for their heads.
func (c *compiler) turnedTexts(by *sorter, more map[uint64]int64, visit func(*turned) error) error {
	d := turned{laid: laid{index: -1, anchor: noAnchor}}
	var before []byte
	return by.walk(c.ctx, func(b []byte) error {
		n := markLength * int(binary.BigEndian.Uint32(b[len(b)-countLength:]))
		d.index++
		before, d.marks = d.marks, append(before[:0], b[:n]...)
		d.shared = commonMarks(before, d.marks)
		d.decode(b[n:len(b)-countLength], n/markLength)
		d.correct(d.out.ends, more)
		d.at = d.out.ends // the same number
		return visit(&d)
	})
}

// turnedLayer visits the same prompts, with what each shares, and the number of marks that it has in common with others.
func (c *compiler) turnedLayer(by, first *sorter, more map[uint64]int64, visit func(*turned, *sharing, int) error) error {
	step, err := newStepCursor(first)
	if err != nil {
		return err
	}
	var l layer
	return c.turnedTexts(by, more, func(d *turned) error {
		if err := step.lay(&l, &d.laid); err != nil {
			return err
		}
		s, common := c.share(d.number, &d.out, l.parts)
		return visit(d, s, common)
	})
}

// appendTo appends the form that decode reads, and the number of marks.
func (d *turned) appendTo(dst []byte) []byte {
	dst = append(dst, d.order[:]...)
	for _, n := range [...]int64{
		d.number, int64(d.model), d.cached, d.out.tokens, flag(d.out.whole), int64(d.out.media),
		int64(d.key), d.moved, int64(d.from), int64(d.to), int64(len(d.bounds)), int64(len(d.out.turns)), //nolint:gosec // back in decode
	} {
		dst = binary.AppendVarint(dst, n)
	}
	for _, b := range d.bounds {
		dst = binary.AppendVarint(binary.AppendVarint(binary.AppendVarint(dst, int64(b.mark)), int64(b.last)), int64(b.key)) //nolint:gosec // likewise
	}
	for _, t := range d.out.turns {
		dst = binary.AppendVarint(binary.AppendVarint(binary.AppendVarint(dst, t.of), t.at), t.tokens)
	}
	before := int64(0)
	for _, end := range d.out.ends {
		dst = binary.AppendVarint(dst, end-before)
		before = end
	}
	return binary.BigEndian.AppendUint32(dst, uint32(len(d.out.ends))) //nolint:gosec // at most MaxCells, MaxEnds and two
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// decode reads the output of appendTo for a prompt with n marks, into the memory of d.
func (d *turned) decode(b []byte, marks int) {
	b = b[copy(d.order[:], b):]
	next := func() int64 {
		v, n := binary.Varint(b)
		b = b[n:]
		return v
	}
	d.number, d.model, d.cached = next(), int(next()), next()
	d.out = laidOut{tokens: next(), whole: next() == 1, media: int(next()), ends: d.out.ends[:0], turns: d.out.turns[:0]}
	d.fit = fit{key: uint64(next()), moved: next(), from: int(next()), to: int(next()), bounds: d.bounds[:0]} //nolint:gosec // as it was written
	bounds, turns := next(), next()
	for range bounds {
		d.bounds = append(d.bounds, bound{int(next()), int(next()), uint64(next())}) //nolint:gosec // likewise
	}
	for range turns {
		d.out.turns = append(d.out.turns, turn{of: next(), at: next(), tokens: next()})
	}
	end := int64(0)
	for range marks {
		end += next()
		d.out.ends = append(d.out.ends, end)
	}
}

// orders returns the followed orders, by model, and one sentence about them; nothing if there are none.
func (e *engines) orders() (orders map[string]journal.PromptOrder, effect string) {
	var texts []string
	byName := func(a, b modelEngine) int {
		return cmp.Or(cmp.Compare(a.model.String(), b.model.String()), cmp.Compare(a.order, b.order), cmp.Compare(a.told, b.told))
	}
	for _, one := range slices.SortedFunc(slices.Values(e.list), byName) {
		if one.order == "" {
			continue
		}
		if orders == nil {
			orders = map[string]journal.PromptOrder{}
		}
		if before := orders[one.model.String()]; before == "" {
			orders[one.model.String()] = one.order
		} else if !strings.HasSuffix(string(before), string(one.order)) {
			orders[one.model.String()] = before + "," + one.order
		}
		texts = append(texts, one.why())
	}
	if len(texts) > 0 {
		effect = "Shared prefixes are those of the parts of prompts in the order in which the engine saw them: " + strings.Join(texts, "; ") + "."
	}
	return orders, effect
}

// why returns which order is followed, and the evidence.
func (e *modelEngine) why() string {
	text := fmt.Sprintf("%s of %s", e.order, cmp.Or(e.model.String(), "requests that name no model"))
	switch {
	case e.told == "":
		return fmt.Sprintf("%s, by %d of its %d counts of cached tokens", text, e.explained, e.rows)
	case e.told == journal.AsSent || e.rows == 0:
		return text + ", with which the capture was configured"
	default:
		return fmt.Sprintf("%s, with which the capture was configured, and which explains %d of its %d counts of cached tokens", text, e.explained, e.rows)
	}
}

// followed replaces what rows of production share by what they share in their engine's order.
type followed struct{ ahead }

// of replaces what the row with this arrival shares, if its engine is followed. Rows must be passed in the order of their arrivals.
func (f *followed) of(c *compiler, order []byte, s *sharing) (err error) {
	if c.followed.empty() {
		return nil
	}
	if f.cursor == nil {
		f.ahead, err = c.followed.ahead()
	}
	for err == nil && len(f.item) > 0 && string(f.item[:arrivalLength]) < string(order) {
		err = f.advance()
	}
	if err == nil && len(f.item) > 0 && string(f.item[:arrivalLength]) == string(order) && s.kind == byText {
		s.decode(f.item[arrivalLength:])
	}
	return err
}
