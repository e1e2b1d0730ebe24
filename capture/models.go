// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"cmp"
	"maps"
	"regexp"
	"slices"

	"github.com/moonloop/moonloop/capture/journal"
)

// One model has several names: the requested name, the name in the reply, which may be a dated variant, and a name for each gateway in
// between. Producers write different names, some even from one request to the next; and prompts under two names would share nothing.
// So the names of one model are found, over all records, and blocks are kept apart by models. Two names count as one model only with proof,
// because blocks of different models must not count as equal:
//
//   - all requests for one name, as far as they say who answered, were answered by the other; a name that several models answer to,
//     such as that of a router, is not the name of any of them;
//   - or one name is the other with a date, and was not seen with another date.
//
// A request belongs to the model of the reply, if that is known.

// The limits of what is recorded about names. If there are more than maxModels names, each is a separate model. A name that more than
// maxAnswers models answer to is always that of a router.
const (
	maxModels  = 1 << 14
	maxAnswers = 16
)

// models is what is known of the names of models.
type models struct {
	names map[journal.Name]*model
	many  bool // more than maxModels
}

type model struct {
	name    journal.Name
	answers map[*model]bool       // the names that answered requests for this name; itself included
	same    *model                // a name of the same model, or nil for the representative
	orders  []journal.PromptOrder // that requests have for it, each once; after settle, those for all of its names
}

// said adds the names of one request: the requested one, and that of the reply; either may be unknown.
func (m *models) said(asked, answered journal.Name) {
	a, b := m.of(asked), m.of(answered)
	if a != nil && b != nil && len(a.answers) <= maxAnswers {
		a.answers[b] = true
	}
}

// told adds the order that a request has for the template of its model.
func (m *models) told(r *journal.Inference) {
	if r.Order == "" {
		return
	}
	if known := m.of(modelOf(r)); known != nil {
		known.addOrder(r.Order)
	}
}

// template identifies how an engine makes its prompts: by a model, and the order configured for it; "" for none.
type template struct {
	model journal.Name
	told  journal.PromptOrder
}

// template returns the template of a request: its model, with the request's own order, else the only order that other requests for the
// model have.
func (m *models) template(r *journal.Inference) template {
	t := template{m.one(r), r.Order}
	if known := m.names[t.model]; known != nil && t.told == "" && len(known.orders) == 1 {
		t.told = known.orders[0]
	}
	return t
}

func (m *models) of(n journal.Name) *model {
	if n.IsZero() || m.many {
		return nil
	}
	known := m.names[n]
	if known == nil {
		if len(m.names) == maxModels {
			m.many, m.names = true, nil
			return nil
		}
		if m.names == nil {
			m.names = map[journal.Name]*model{}
		}
		known = &model{name: n, answers: map[*model]bool{}}
		m.names[n] = known
	}
	return known
}

// addOrder adds an order, unless it is there.
func (m *model) addOrder(o journal.PromptOrder) {
	if !slices.Contains(m.orders, o) {
		m.orders = append(m.orders, o)
	}
}

// root returns the representative name of a model.
func (m *model) root() *model {
	for m.same != nil {
		m = m.same
	}
	return m
}

// join makes two names one model, and reports whether they were not before. The name that sorts first becomes the representative.
func join(a, b *model) bool {
	a, b = a.root(), b.root()
	if a == b {
		return false
	}
	if a.name.String() > b.name.String() {
		a, b = b, a
	}
	b.same = a
	return true
}

// settle decides which names are one model. Joining only enables more joining, so the order does not matter.
func (m *models) settle() {
	all := slices.SortedFunc(maps.Values(m.names), func(a, b *model) int { return cmp.Compare(a.name.String(), b.name.String()) })
	dated := map[string][]*model{}
	for _, v := range all {
		if base := undated(v.name.String()); base != v.name.String() {
			dated[base] = append(dated[base], v)
		}
	}
	for base, variants := range dated {
		if v := m.names[nameOf(base)]; v != nil && len(variants) == 1 && onlyOf(v, variants[0]) {
			join(v, variants[0])
		}
	}
	for more := true; more; {
		more = false
		for _, v := range all {
			if one := oneAnswer(v); one != nil && join(v, one) {
				more = true
			}
		}
	}
	for _, v := range all {
		for _, o := range v.orders {
			v.root().addOrder(o)
		}
	}
}

// onlyOf reports whether requests for a name were answered only under that name and one other, as far as is known.
func onlyOf(v, other *model) bool {
	for answer := range v.answers {
		if answer != v && answer != other {
			return false
		}
	}
	return true
}

// oneAnswer returns the model that answers to a name, nil if there are several or none is known.
func oneAnswer(v *model) *model {
	var one *model
	if len(v.answers) > maxAnswers {
		return nil
	}
	for answer := range v.answers {
		if one != nil && one.root() != answer.root() {
			return nil
		}
		one = answer
	}
	return one
}

// nameOf returns a part of a name as a name.
func nameOf(s string) journal.Name {
	n, _ := journal.ParseName(s) // cannot fail: the whole text is a valid name
	return n
}

// datePattern matches dates at the end of model names: gpt-4o-2024-08-06, claude-3-5-sonnet-20241022-v2:0, claude-3-haiku@20240307.
var datePattern = regexp.MustCompile(`^(.+)[-@:]20\d\d-?(?:0[1-9]|1[0-2])-?(?:0[1-9]|[12]\d|3[01])(?:-v\d+(?::\d+)?)?$`)

// undated returns a model's name without its date.
func undated(name string) string {
	if match := datePattern.FindStringSubmatch(name); match != nil {
		return match[1]
	}
	return name
}

// one returns the representative name of a request's model.
func (m *models) one(r *journal.Inference) journal.Name {
	name := modelOf(r)
	if known := m.names[name]; known != nil {
		return known.root().name
	}
	return name
}

// aliases lists the names of models with several names, each with its representative first.
func (m *models) aliases() [][]string {
	byRoot := map[string][]string{}
	for name, v := range m.names {
		root := v.root().name.String()
		byRoot[root] = append(byRoot[root], name.String())
	}
	var out [][]string
	for _, names := range byRoot {
		if len(names) > 1 {
			slices.Sort(names)
			out = append(out, names)
		}
	}
	slices.SortFunc(out, slices.Compare[[]string])
	return out
}
