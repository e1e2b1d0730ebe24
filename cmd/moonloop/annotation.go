// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/receiver/annotate"
)

// settingNames matches the names of a Collector's settings that are flags here.
var settingNames = regexp.MustCompile(`(?m)^(block_size|session_keys|class_keys|deny|prompt_order)(?:\[(\d+)\])?:`)

// checkAnnotation checks the settings of annotation, and reports errors with the names of the flags.
func checkAnnotation(c annotate.Config) error {
	err := c.Validate()
	if err == nil {
		return nil
	}
	return errors.New(settingNames.ReplaceAllStringFunc(err.Error(), func(name string) string {
		part := settingNames.FindStringSubmatch(name)
		n, _ := strconv.Atoi(part[2]) // digits, or nothing
		switch part[1] {
		case "session_keys":
			return fmt.Sprintf("--session-key %.80q:", c.SessionKeys[n])
		case "class_keys":
			return fmt.Sprintf("--class-key %.80q:", c.ClassKeys[n])
		case "deny":
			return fmt.Sprintf("--deny %.80q:", c.Deny[n])
		case "prompt_order":
			return fmt.Sprintf("--prompt-order %.80q:", c.PromptOrder[n].Model+"="+c.PromptOrder[n].Order)
		}
		return "--block-size:"
	}))
}

// addPromptOrder adds the flag for the order in which the chat templates of models write prompts.
func addPromptOrder(fs *pflag.FlagSet, values *[]string) {
	listVar(fs, values, "prompt-order", reads("MODEL=ORDER with an order of system_last, tools_last, both_last or as_sent, such as 'mistral-*=system_last'", parsePromptOrder))
}

// parsePromptOrder parses a value of --prompt-order. Names of models may contain an equals sign, orders do not.
func parsePromptOrder(value string) (annotate.ModelOrder, error) {
	at := max(strings.LastIndexByte(value, '='), 0)
	order := annotate.ModelOrder{Model: value[:at], Order: strings.TrimPrefix(value[at:], "=")}
	config := annotate.Config{PromptOrder: []annotate.ModelOrder{order}}
	return order, config.Validate()
}

// promptOrders parses the values of --prompt-order. They have no effect if prompts stay in telemetry's order, which is an error.
func promptOrders(values []string, follow capture.FollowEngine) (orders []annotate.ModelOrder, err error) {
	for _, value := range values {
		order, _ := parsePromptOrder(value) // checkAnnotation checks all together
		orders = append(orders, order)
	}
	if len(orders) > 0 && follow == capture.FollowNever {
		err = errors.New("--prompt-order has no effect with --follow-engine never, which leaves prompts as telemetry shows them: give one of the two")
	}
	return orders, err
}
