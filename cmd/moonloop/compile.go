// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/mooncake"
)

// journalSuffix is what the names of journals in a folder end with.
const journalSuffix = ".journal"

// gcPercent is the part of the heap that may be garbage.
const gcPercent = 25

// compileOptions are the flags of compile.
type compileOptions struct {
	capture.Options

	out      string
	run      string
	memory   string
	json     bool
	progress string
}

// newCompileCommand returns the command that makes traces of journals.
func newCompileCommand() *cobra.Command {
	opt := compileOptions{memory: humanize.IBytes(capture.DefaultMemory)}
	cmd := &cobra.Command{
		Use:   "compile JOURNAL...",
		Short: "Make traces of the journals of collectors",
		Long: `Compile makes Mooncake traces of the journals that the mooncake exporter of a Collector, or
"moonloop capture", has written: one trace of production, and one of each replay that was captured
beside it. A folder stands for all *.journal files in it.

Name the journals of all collectors that saw the traffic in one command, in any order: the same
records give the same bytes, however they were spread. Traces that were compiled apart cannot be put
together afterwards, because each numbers its blocks by itself. Collectors must share their key
(MOONLOOP_HASH_KEY), or the same prompt is two prompts.

Production goes to the file that --out names, a replay to out.run-ID.jsonl beside it; each has a
sidecar, X.meta.json. Files appear whole or not at all, replace those that were there, and are
compressed when the name ends in .gz or .zst. Journals stay as they are, damaged or torn ones are
compiled as far as they can be read, and what is not in a trace is counted.

Beyond --memory records are sorted in temporary files in --temp-dir, up to twice as large as the
journals. What comes on top, without a bound, are distinct block ids: up to 64 bytes each.

Exit status: 0 when traces were written; 2 when a journal cannot be read or none holds a row;
130 when interrupted.`,
		Example: `  moonloop compile /var/lib/otelcol/journal --out prod.jsonl
  moonloop compile pod-*/journal/*.journal --out prod.jsonl.zst --replays drop
  moonloop compile journals --run 0f8c1b2a --out replayed.jsonl`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runCompile(cmd.Context(), args, opt, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.StringVarP(&opt.out, "out", "o", "", "file for the trace of production; those of replays go beside it")
	f.StringVar((*string)(&opt.Replays), "replays", string(capture.ReplaysSeparate), "replays in the journals: separate (a trace each), drop, or only")
	f.StringVar(&opt.run, "run", "", "only the replay of this run id, to the file that --out names")
	f.StringVar((*string)(&opt.Format), "format", string(capture.FormatFull), "full, or mooncake: the four plain fields, for tools that know no others")
	f.StringVar((*string)(&opt.MissingTokens), "missing-tokens", string(capture.MissingDrop), "requests whose tokens nobody counted: drop, or estimate")
	f.IntVar(&opt.BlockSize, "block-size", mooncake.BlockSize, "tokens per hash id of production; a replay has that of its trace")
	f.StringVar(&opt.memory, "memory", opt.memory, "memory to sort in, before temporary files")
	f.StringVar(&opt.TempDir, "temp-dir", "", "folder for temporary files (default: that of the system)")
	f.BoolVar(&opt.json, "json", false, "print JSON instead of tables")
	f.StringVar(&opt.progress, "progress", "auto", "progress on standard error: auto, bar, lines or none")
	return cmd
}

func runCompile(ctx context.Context, args []string, opt compileOptions, stdout, stderr io.Writer) error {
	if err := opt.complete(); err != nil {
		return err
	}
	journals, size, err := findJournals(args)
	if err != nil {
		return err
	}
	progress, err := newCompileProgress(stderr, opt.progress, size)
	if err != nil {
		return err
	}
	opt.Progress = progress.update
	var sources []capture.Source
	for _, name := range journals {
		sources = append(sources, capture.FileSource(name))
	}
	if os.Getenv("GOGC") == "" {
		// What grows with the traffic are numbers without pointers, which cost nothing to collect, and twice their memory
		// if that is put off.
		defer debug.SetGCPercent(debug.SetGCPercent(gcPercent))
	}
	out := compiled{Files: map[string]string{}}
	sink := capture.Files(opt.out)
	if opt.run != "" {
		sink = opt.sinkOfRun
	}
	out.Result, err = capture.Compile(ctx, opt.Options, sink, sources...)
	progress.end()
	if err != nil {
		if errors.Is(err, capture.ErrNotJournal) {
			return hintError{err, "journals are the *" + journalSuffix + ` files of the mooncake exporter; "moonloop convert" reads telemetry in files`}
		}
		return err
	}
	if opt.run != "" {
		out.Traces = slices.DeleteFunc(out.Traces, func(t capture.TraceResult) bool { return t.Run.String() != opt.run })
	}
	for _, t := range out.Traces {
		if t.Meta.Rows > 0 {
			out.Files[partitionName(t.Partition)] = opt.file(t.Partition)
		}
	}
	if opt.json {
		enc := json.NewEncoder(stdout)
		enc.SetIndent("", "  ")
		err = enc.Encode(out)
	} else {
		err = out.print(stdout)
	}
	if err != nil {
		return fmt.Errorf("output: %w", err)
	}
	if len(out.Files) == 0 {
		return out.noRows(opt)
	}
	return nil
}

// complete checks the flags and puts them into the options.
func (o *compileOptions) complete() error {
	if o.out == "" {
		return hintError{errors.New("no file to write to"), "name one: --out trace.jsonl"}
	}
	if _, err := os.Stat(filepath.Dir(o.out)); err != nil {
		return fmt.Errorf("--out %s cannot be created: %w", o.out, err) // now, not after all the work
	}
	memory, err := humanize.ParseBytes(o.memory)
	if err != nil || memory == 0 || memory > 1<<50 {
		return fmt.Errorf("--memory %q: want a number of bytes above 0, such as 256MiB", o.memory)
	}
	o.Memory = int(memory)
	if o.run != "" {
		if o.Replays == capture.ReplaysDrop {
			return errors.New("--run names a replay, and --replays drop leaves all of them out: choose one")
		}
		o.Replays = capture.ReplaysOnly
	}
	o.Tool = "moonloop " + version()
	return nil
}

// file is where the trace of a partition goes.
func (o *compileOptions) file(p capture.Partition) string {
	if !p.Replay || o.run != "" {
		return o.out
	}
	return capture.RunFile(o.out, p.Run)
}

// sinkOfRun writes one run and lets the others go by.
func (o *compileOptions) sinkOfRun(p capture.Partition) (capture.TraceWriter, error) {
	if p.Run.String() != o.run {
		return nowhere{}, nil
	}
	return mooncake.Create(o.out)
}

// nowhere is where a trace goes that nobody asked for.
type nowhere struct{}

func (nowhere) Write(*mooncake.Row) error   { return nil }
func (nowhere) Commit(*mooncake.Meta) error { return nil }
func (nowhere) Close() error                { return nil }

// findJournals returns the files that the arguments stand for, each once, and their size in bytes.
func findJournals(args []string) (names []string, size int64, err error) {
	seen := map[string]bool{}
	add := func(name string, info fs.FileInfo) {
		if id := filepath.Clean(name); !seen[id] {
			seen[id] = true
			names = append(names, name)
			size += info.Size()
		}
	}
	for _, arg := range args {
		info, err := os.Stat(arg)
		if err != nil {
			return nil, 0, fmt.Errorf("journal: %w", err)
		}
		if !info.IsDir() {
			add(arg, info)
			continue
		}
		entries, err := os.ReadDir(arg)
		if err != nil {
			return nil, 0, fmt.Errorf("folder of journals: %w", err)
		}
		found := false
		for _, e := range entries {
			if e.IsDir() || !strings.HasSuffix(e.Name(), journalSuffix) {
				continue
			}
			name := filepath.Join(arg, e.Name())
			info, err := os.Stat(name)
			if err != nil {
				return nil, 0, fmt.Errorf("journal: %w", err)
			}
			add(name, info)
			found = true
		}
		if !found {
			return nil, 0, fmt.Errorf("folder %s holds no *%s file: name the folder that the exporter writes to, or the files", arg, journalSuffix)
		}
	}
	return names, size, nil
}
