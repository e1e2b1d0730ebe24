// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

// This file draws traces from a folder of clients that are given by distributions: "moonloop generate --clients".

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/moonloop/moonloop/internal/term"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/generate"
)

// clientFlags are the flags for --clients, in addition to those of generate.
type clientFlags struct {
	generate.Clients
	folder string
}

// clientFlagNames are the flags that have an effect together with --clients.
var clientFlagNames = map[string]bool{
	"clients": true, "start": true, "out": true, "force": true, "seed": true, "rows": true, "duration": true, "rate": true, "block-size": true,
}

// drawn reports whether a trace is drawn from clients, with the settings from cfg and the flags.
func (c *clientFlags) drawn(fs *pflag.FlagSet, cfg generate.Config) (bool, error) {
	if c.folder == "" {
		if fs.Changed("start") {
			return false, errors.New("--start has no effect without --clients, whose data has a time of its own: leave it out")
		}
		return false, nil
	}
	var err error
	fs.Visit(func(f *pflag.Flag) {
		if err == nil && !clientFlagNames[f.Name] {
			err = fmt.Errorf("--%s has no effect with --clients, whose files describe the requests: leave one of the two out", f.Name)
		}
	})
	if err != nil {
		return false, err
	}
	c.Seed = cfg.Seed
	for name, set := range map[string]func(){
		"rows": func() { c.Rows = cfg.Rows }, "duration": func() { c.Duration = cfg.Duration }, "rate": func() { c.Rate = cfg.Rate },
	} {
		if fs.Changed(name) { // their defaults are for another kind of trace
			set()
		}
	}
	return true, nil
}

// run draws and writes the trace.
func (c *clientFlags) run(cmd *cobra.Command, files *outputs, blockSize int) error {
	folder := os.DirFS(c.folder)
	if !generate.IsClients(folder) {
		return hintError{
			fmt.Errorf("--clients %s: has no chunk-N-trace.csv", c.folder), "ServeGen's repository has such folders: data/language/m-small, data/reason/deepseek-r1 and others",
		}
	}
	return writeGenerated(cmd.Context(), files, blockSize, cmd.OutOrStdout(), cmd.ErrOrStderr(), func(row func(*mooncake.Row) error) (mooncake.Meta, error) {
		drawn, err := generate.FromClients(c.Clients, folder, row)
		switch {
		case err != nil:
			return mooncake.Meta{}, fmt.Errorf("--clients %s: %w", c.folder, err)
		case drawn.Expected == 0:
			return mooncake.Meta{}, hintError{fmt.Errorf("--clients %s: no client has requests in this part of its time", c.folder), "leave out --start and --duration, or choose another part"}
		}
		meta := mooncake.Meta{
			SessionMode: mooncake.SessionNone,
			Transformations: []mooncake.Transformation{{
				Name: "generate", Parameters: map[string]any{"clients": filepath.Base(c.folder), "config": c.Clients},
				Effect: fmt.Sprintf("requests of %s; over all seeds there are %.0f on average", term.Counted(int64(drawn.Clients), "clients"), drawn.Expected),
			}},
		}
		if drawn.Unknown > 0 {
			meta.Dropped = []mooncake.Dropped{{What: "requests", Reason: "their client has no lengths for the time", Count: drawn.Unknown}}
		}
		return meta, nil
	})
}
