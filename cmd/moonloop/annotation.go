// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"

	"github.com/moonloop/moonloop/receiver/annotate"
)

// settingNames finds the names under which a Collector's configuration has what is a flag here.
var settingNames = regexp.MustCompile(`(?m)^(block_size|session_keys|deny)(?:\[(\d+)\])?:`)

// checkAnnotation checks how telemetry is annotated, and says what is wrong in the words of the flags.
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
		case "deny":
			return fmt.Sprintf("--deny %.80q:", c.Deny[n])
		}
		return "--block-size:"
	}))
}
