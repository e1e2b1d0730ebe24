// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/moonloop/moonloop/capture"
)

// traceFlags are the flags that every command which makes traces of telemetry has.
type traceFlags struct {
	capture.Options
	out         string
	force, json bool
	memory      string
}

// addOutput adds the flags of what is written.
func (f *traceFlags) addOutput(fs *pflag.FlagSet) {
	fs.StringVarP(&f.out, "out", "o", "", "`FILE` to write the trace to (required); compressed if the name ends in .gz or .zst")
	fs.BoolVar(&f.force, "force", false, "replace an existing trace, its .meta.json and its traces of replays")
	fs.StringVar((*string)(&f.Format), "format", string(capture.FormatFull),
		"full, or mooncake: only the four fields that every tool reads, with unique ids for prompts that are not known")
	fs.BoolVar(&f.json, "json", false, "print the result as JSON")
}

// addRequests adds the flags of what becomes of requests. The prefix says where they have an effect.
func (f *traceFlags) addRequests(fs *pflag.FlagSet, prefix string) {
	fs.StringVar((*string)(&f.Replays), "replays", string(capture.ReplaysSeparate), prefix+"what to do with requests of replays: separate (traces of their own), drop or only")
	fs.StringVar((*string)(&f.MissingTokens), "missing-tokens", string(capture.MissingDrop), prefix+"what to do with requests without token counts: drop or estimate")
	fs.StringVar((*string)(&f.FollowEngine), "follow-engine", string(capture.FollowAuto),
		prefix+"share prompts in the order in which the engine saw them, where spans name it or its counts of cached tokens prove it (auto), or as telemetry shows them (never)")
	fs.StringVar(&f.memory, "memory", humanize.IBytes(capture.DefaultMemory), prefix+"memory for sorting, such as 256MiB, before temporary files are used")
	fs.StringVar(&f.TempDir, "temp-dir", "", prefix+"`DIR` for temporary files (default: the system's)")
}

// options returns what the flags mean to a compile.
func (f *traceFlags) options(cmd *cobra.Command) capture.Options {
	memory, _ := humanize.ParseBytes(f.memory) // its rule has read it
	opt := f.Options
	opt.Memory, opt.Tool = int(memory), cmd.CommandPath()+" "+version() //nolint:gosec // likewise
	return opt
}
