// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert_test

import (
	"testing"

	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/convert"
	"github.com/moonloop/moonloop/internal/testproducers"
	"github.com/moonloop/moonloop/receiver/annotate"
)

// TestPromptOrder: prompts are hashed in the order that is configured for the template of their model, whatever the form of the text; the
// sidecar names the order of each model whose prompts have text.
func TestPromptOrder(t *testing.T) {
	said := 0
	for _, p := range testproducers.All() {
		var traces []*trace
		opt := convert.Options{Format: convert.OTLP, Annotate: annotate.Config{Key: testKey(t), PromptOrder: []annotate.ModelOrder{{Model: "*", Order: "system_last"}}}}
		files := []capture.Source{source("traces", string(p.Traces)), source("logs", string(p.Logs))}
		if p.Logs == nil {
			files = files[:1]
		}
		if _, err := convert.Convert(t.Context(), opt, memory(&traces), files...); err != nil {
			t.Fatal(err)
		}
		m := traces[0].meta
		orders, _ := m.Transformations[1].Parameters["prompt_order"].(map[string]journal.PromptOrder)
		if want := m.Identity["text"] > 0; want != (len(orders) > 0) {
			t.Errorf("%s: %d rows of text, orders %v", p.Name, m.Identity["text"], orders)
		}
		for model, order := range orders {
			if said++; order != journal.SystemLast {
				t.Errorf("%s: order %q of %q", p.Name, order, model)
			}
		}
	}
	if said < 5 {
		t.Errorf("%d orders: the test says little", said)
	}
}
