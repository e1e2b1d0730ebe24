// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/moonloop/moonloop/capture"
)

// traceFlags are the flags of every command that makes traces from telemetry.
type traceFlags struct {
	capture.Options
	out         string
	force, json bool
}

// addOutput adds the flags about output files.
func (f *traceFlags) addOutput(fs *pflag.FlagSet) {
	add(fs, &f.out, "out,o", "", traceFile)
	add(fs, &f.force, "force", false)
	wordVar(fs, &f.Format, "format", capture.FormatFull, capture.FormatFull, capture.FormatMooncake)
	add(fs, &f.json, "json", false)
}

// addRequests adds the flags about how requests become rows.
func (f *traceFlags) addRequests(fs *pflag.FlagSet) {
	wordVar(fs, &f.Replays, "replays", capture.ReplaysSeparate, capture.ReplaysSeparate, capture.ReplaysDrop, capture.ReplaysOnly)
	wordVar(fs, &f.MissingTokens, "missing-tokens", capture.MissingDrop, capture.MissingDrop, capture.MissingEstimate)
	wordVar(fs, &f.FollowEngine, "follow-engine", capture.FollowAuto, capture.FollowAuto, capture.FollowNever)
	wordVar(fs, &f.Graphs, "graphs", capture.GraphsAgents, capture.GraphsAgents, capture.GraphsAll, capture.GraphsNever)
	bytesVar(fs, &f.Memory, "memory", capture.DefaultMemory, 1, "above 0")
	add(fs, &f.TempDir, "temp-dir", "", that("a folder that exists", isFolder))
}

// requestFlags returns the names of the flags about how requests become rows.
func requestFlags() (names []string) {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	new(traceFlags).addRequests(fs)
	fs.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return names
}

// options returns the options of a compilation from the flags.
func (f *traceFlags) options(cmd *cobra.Command) capture.Options {
	opt := f.Options
	opt.Tool = cmd.CommandPath() + " " + version()
	return opt
}

// begin checks the output files, as far as possible in advance. If runs is true, replays have their own traces next to the output file.
func (f *traceFlags) begin(runs bool, inputs ...string) (*traces, error) {
	t := &traces{traceFlags: f, outputs: outputs{out: f.out, force: f.force, runs: runs && f.Replays != capture.ReplaysDrop}}
	for _, name := range inputs {
		t.read(name)
	}
	return t, t.check()
}
