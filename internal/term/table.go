// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package term

import (
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// NewTable returns an empty table without lines, except the one below its header.
func NewTable() table.Writer {
	w := table.NewWriter()
	style := table.StyleRounded
	style.Options = table.OptionsNoBordersAndSeparators
	style.Options.SeparateHeader = true
	style.Format.Header = text.FormatDefault
	w.SetStyle(style)
	return w
}
