// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/moonloop/moonloop/capture"
)

// traceFlags are the flags that every command which makes traces of telemetry has.
type traceFlags struct {
	out                        string
	force, json                bool
	format, replays, untokened string
	blockSize                  int
	memory, tempDir            string
}

// addOutput adds the flags of what is written.
func (f *traceFlags) addOutput(fs *pflag.FlagSet) {
	fs.StringVarP(&f.out, "out", "o", "", "`FILE` to write the trace to (required); compressed if the name ends in .gz or .zst")
	fs.BoolVar(&f.force, "force", false, "replace an existing trace, its .meta.json and its traces of replays")
	fs.StringVar(&f.format, "format", string(capture.FormatFull),
		"full, or mooncake: only the four fields that every tool reads, with unique ids for prompts that are not known")
	fs.BoolVar(&f.json, "json", false, "print the result as JSON")
}

// addRequests adds the flags of what becomes of requests. The prefix says where they have an effect.
func (f *traceFlags) addRequests(fs *pflag.FlagSet, prefix string) {
	fs.StringVar(&f.replays, "replays", string(capture.ReplaysSeparate), prefix+"what to do with requests of replays: separate (traces of their own), drop or only")
	fs.StringVar(&f.untokened, "missing-tokens", string(capture.MissingDrop), prefix+"what to do with requests without token counts: drop or estimate")
	fs.StringVar(&f.memory, "memory", humanize.IBytes(capture.DefaultMemory), prefix+"memory for sorting, such as 256MiB, before temporary files are used")
	fs.StringVar(&f.tempDir, "temp-dir", "", prefix+"`DIR` for temporary files (default: the system's)")
}

// choice checks a flag that has a few values.
func choice(flag, value string, known ...string) error {
	if slices.Contains(known, value) {
		return nil
	}
	return fmt.Errorf("--%s %q: want %s", flag, value, strings.Join(known, " or "))
}

// parseSize reads a flag that is a number of bytes; least says in words what the smallest one is.
func parseSize(flag, value string, smallest uint64, least string) (int64, error) {
	n, err := humanize.ParseBytes(value)
	if err != nil || n < smallest || n > 1<<50 {
		return 0, fmt.Errorf("--%s %q: want a number of bytes %s, such as 256MiB", flag, value, least)
	}
	return int64(n), nil
}

// options checks the flags, and returns what they mean to a compile.
func (f *traceFlags) options(cmd *cobra.Command) (capture.Options, error) {
	errs := []error{
		choice("format", f.format, string(capture.FormatFull), string(capture.FormatMooncake)),
		choice("replays", f.replays, string(capture.ReplaysSeparate), string(capture.ReplaysDrop), string(capture.ReplaysOnly)),
		choice("missing-tokens", f.untokened, string(capture.MissingDrop), string(capture.MissingEstimate)),
	}
	if cmd.Flags().Changed("block-size") && (f.blockSize < 1 || f.blockSize > 1<<30) {
		errs = append(errs, fmt.Errorf("--block-size %d: want 1 to 2^30 tokens", f.blockSize))
	}
	memory, err := parseSize("memory", f.memory, 1, "above 0")
	errs = append(errs, err)
	return capture.Options{
		Replays: capture.Replays(f.replays), Format: capture.Format(f.format), MissingTokens: capture.MissingTokens(f.untokened),
		BlockSize: f.blockSize, Memory: int(memory), TempDir: f.tempDir, Tool: cmd.CommandPath() + " " + version(),
	}, errors.Join(errs...)
}
