// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package annotate

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/moonloop/moonloop/genai"
	"github.com/moonloop/moonloop/semconv"
)

// Telemetry does not show in which order the template of a model writes a prompt. An operator can configure it by the model's name; then
// each span of that model records it. The text is still hashed in the order of telemetry: the compiler knows from usage, to the
// token, where in the template's order a reply ends, and moves the parts.

// orders are the values of [semconv.PromptOrder].
var orders = []string{semconv.PromptOrderAsSent, semconv.PromptOrderSystemLast, semconv.PromptOrderToolsLast, semconv.PromptOrderBothLast}

// isPromptOrder reports whether a text is a valid order of prompts.
func isPromptOrder(s string) bool { return slices.Contains(orders, s) }

// ModelOrder says in which order the chat template of a model writes a prompt.
type ModelOrder struct {
	// Model is the requested model, or that of the reply. A trailing * matches all names with that beginning.
	Model string `mapstructure:"model"`
	// Order names what the template moves directly before the last message of the user: as_sent (nothing), system_last, tools_last or
	// both_last.
	Order string `mapstructure:"order"`
}

// matches reports whether the order applies to a model.
func (o ModelOrder) matches(name string) bool {
	prefix, cut := strings.CutSuffix(o.Model, "*")
	return name == o.Model || cut && strings.HasPrefix(name, prefix)
}

// order returns the configured order for the requested model, or for that of the reply; "" if there is none.
func (c *Config) order(rec *genai.Record) string {
	for _, o := range c.PromptOrder {
		if o.matches(rec.RequestModel) || o.matches(rec.ResponseModel) {
			return o.Order
		}
	}
	return ""
}

// validateOrders returns the errors of [Config.PromptOrder].
func (c *Config) validateOrders() (errs []error) {
	for i, o := range c.PromptOrder {
		prefix, _ := strings.CutSuffix(o.Model, "*")
		if o.Model == "" || len(o.Model) > maxName || strings.Contains(prefix, "*") {
			errs = append(errs, fmt.Errorf("prompt_order[%d]: model must be the name of a model, of 1 to %d bytes, or the beginning of names and one * after it", i, maxName))
		}
		if !isPromptOrder(o.Order) {
			errs = append(errs, fmt.Errorf("prompt_order[%d]: order is %.40q, and must be one of %s", i, o.Order, strings.Join(orders, ", ")))
		}
		if at := slices.IndexFunc(c.PromptOrder[:i], func(before ModelOrder) bool { return before.matches(o.Model) }); at >= 0 {
			errs = append(errs, fmt.Errorf("prompt_order[%d]: has no effect after that of %.80q, which matches all of its models: put it before that one, or leave it out",
				i, c.PromptOrder[at].Model))
		}
	}
	if len(c.PromptOrder) > 0 && c.OmitMessageEnds {
		errs = append(errs, errors.New("prompt_order: has no effect with message_ends false, since nobody knows then where the system text ends: leave one of them out"))
	}
	return errs
}
