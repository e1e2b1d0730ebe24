// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/moonloop/moonloop/agent/judge"
	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/internal/testschema"
	"github.com/moonloop/moonloop/mooncake"
)

// everything returns a report with all possible parts.
func everything(t *testing.T) *Report {
	t.Helper()
	r := sample(t)
	a := measure.NewAggregate(measure.Options{SLO: r.figures.SLO})
	for i, rec := range records() {
		rec.Server = &measure.Server{Name: []string{"a:1", "b:2"}[i%2]}
		rec.Row.Class, rec.Priority = []string{"batch", ""}[i%2], mooncake.Some(int64(i%2))
		a.Add(rec)
	}
	r.figures = a.Figures()
	r.Steady = NewSteady(r.figures, Window{Automatic: true})
	r.Settings = []Setting{{Name: "seed", Value: 7, From: "default"}, {Name: "url", Value: []string{"http://a"}, From: "flag"}}
	r.Saved, r.Warmup = &Saved{File: "prompts.jsonl"}, &Warmup{}
	r.Shard = &Shard{Of: 2, Plan: "1", Clock: &Clock{Reference: "ntp"}}
	r.Merged = &Merged{Shards: []MergedShard{{Folder: "0", Clock: r.Shard.Clock}}, ClocksApart: new(1.5)}
	return r
}

// TestSchema generates the schema of summary.json from the types of its members, and validates reports with it.
func TestSchema(t *testing.T) {
	full := everything(t)
	s := schemaOf(t, full.members())
	s.Title, s.Description = "summary.json of moonloop", "What a replay measured. Latencies and other durations are in milliseconds. A figure that was not measured is absent."
	s.Defs = map[string]*jsonschema.Schema{
		"distribution": testschema.Of(t, reflect.TypeFor[measure.Stat](), nil), "number": testschema.Of(t, reflect.TypeFor[single](), nil),
	}
	for _, m := range New(measure.NewAggregate(measure.Options{}).Figures()).members() { // which each report has
		if _, measured := figureIDs()[m.key]; !measured {
			s.Required = append(s.Required, m.key)
		}
	}
	testschema.Fresh(t, "summary.schema.json", s, *update)
	if *update {
		return
	}
	for name, r := range map[string]*Report{"everything": full, "a sample": sample(t), "nothing": New(measure.NewAggregate(measure.Options{}).Figures())} {
		text, err := r.JSON()
		if err != nil {
			t.Fatal(err)
		}
		if err := testschema.Check(t, SummarySchema(), true, text); err != nil {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
	}
	text, err := full.JSON()
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string][2]string{
		"an unknown class":       {`"class": "degraded"`, `"class": "fine"`},
		"a number as text":       {`"p99": `, `"p99": "x", "was": `},
		"an unknown member":      {`"std": `, `"deviation": 1, "std": `},
		"a part that is missing": {`"verdict": `, `"judgement": `},
	} {
		broken := strings.Replace(string(text), change[0], change[1], 1)
		if broken == string(text) {
			t.Fatalf("%s: nothing was changed", name)
		}
		if testschema.Check(t, SummarySchema(), true, []byte(broken)) == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	if err := testschema.Check(t, SummarySchema(), false, []byte(strings.Replace(string(text), `"std": `, `"deviation": 1, "std": `, 1))); err != nil {
		t.Errorf("a member of a later version is refused: %v", err)
	}
}

// schemaOf returns the schema of an object by its members.
func schemaOf(t *testing.T, all members) *jsonschema.Schema {
	t.Helper()
	s := &jsonschema.Schema{Type: "object", Properties: map[string]*jsonschema.Schema{}}
	add := func(m member) {
		if s.Properties[m.key] != nil {
			return
		}
		var of *jsonschema.Schema
		if id, is := figureIDs()[m.key]; is {
			of = &jsonschema.Schema{Ref: "#/$defs/distribution", Description: id.Define().Title}
			if id.Single() {
				of.Ref = "#/$defs/number"
			}
		} else if inner, nested := m.value.(members); nested {
			of = schemaOf(t, inner)
		} else {
			of = testschema.Of(t, reflect.TypeOf(m.value), map[reflect.Type]*jsonschema.Schema{
				reflect.TypeFor[judge.Class](): testschema.Words(judge.Words()...),
			})
		}
		s.Properties[m.key], s.PropertyOrder = of, append(s.PropertyOrder, m.key)
	}
	measured := false
	for _, m := range all {
		if _, is := figureIDs()[m.key]; is && !measured { // all of them, in their order
			measured = true
			for id := range measure.Definitions() {
				add(figureMember(id, measure.Stat{}))
			}
		}
		add(m)
	}
	return s
}

// figureIDs returns the figures by key.
func figureIDs() map[string]measure.ID {
	ids := map[string]measure.ID{}
	for id := range measure.Definitions() {
		ids[id.String()] = id
	}
	return ids
}
