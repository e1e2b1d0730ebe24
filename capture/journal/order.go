// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"slices"

	"github.com/moonloop/moonloop/semconv"
)

// PromptOrder is the order in which an engine's template writes the system text and the tools that begin a prompt.
type PromptOrder string

// The orders. The name says what is directly before the last message of the user.
const (
	AsSent     PromptOrder = semconv.PromptOrderAsSent     // nothing, as telemetry shows it
	SystemLast PromptOrder = semconv.PromptOrderSystemLast // the system text
	ToolsLast  PromptOrder = semconv.PromptOrderToolsLast  // the definitions of tools
	BothLast   PromptOrder = semconv.PromptOrderBothLast   // the two
)

// orderNumbers are all orders, by their numbers in journals, from 1.
var orderNumbers = [...]PromptOrder{1: AsSent, SystemLast, ToolsLast, BothLast}

// ParsePromptOrder reads a mooncake.prompt_order attribute. ok is false for an unknown value.
func ParsePromptOrder(s string) (o PromptOrder, ok bool) {
	o = PromptOrder(s)
	return o, s != "" && slices.Contains(orderNumbers[:], o)
}

// number returns the number of an order in journals; 0 for none.
func (o PromptOrder) number() byte {
	return byte(max(slices.Index(orderNumbers[:], o), 0)) //nolint:gosec // of few
}

// orderOf returns the order with a number; "" if there is none.
func orderOf(number byte) PromptOrder {
	if int(number) < len(orderNumbers) {
		return orderNumbers[number]
	}
	return ""
}
