// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/internal/objects"
	"github.com/moonloop/moonloop/internal/term"
	"github.com/moonloop/moonloop/mooncake"
)

// journalSuffix is the end of the names of journals in a folder.
const journalSuffix = ".journal"

// gcPercent is how much garbage there may be, in percent of the memory in use.
const gcPercent = 25

// leastLimit is the lowest limit of memory that is set, in bytes. Near the limit, garbage is collected more often than gcPercent says.
const leastLimit = 96 << 20

// compileFlags are the flags of compile.
type compileFlags struct {
	traceFlags
	list     bool
	run      string
	progress string
	shard    [2]int // index, and number of shards
	shardDir string
}

// newCompileCommand returns the command that makes traces from journals.
func newCompileCommand() *cobra.Command {
	var f compileFlags
	cmd := &cobra.Command{
		Use:   "compile JOURNAL... --out TRACE",
		Short: "Build traces from the journals of collectors",
		Args:  someInputs("one or more journals or folders of journals", "name the *.journal files, or the folder that they are in"),
		RunE:  func(cmd *cobra.Command, args []string) error { return runCompile(cmd, args, f) },
	}
	fs := cmd.Flags()
	f.addOutput(fs)
	add(fs, &f.list, "list", false)
	add(fs, &f.run, "run", "", runID)
	f.addRequests(fs)
	add(fs, &f.BlockSize, "block-size", mooncake.BlockSize, blockSize)
	textVar(fs, &f.shard, "shard", "", "i/n with 0 ≤ i < n, such as 0/4, or auto/n", parseShard)
	add(fs, &f.shardDir, "shard-dir", "", anyText("the name of a folder"))
	wordVar(fs, &f.progress, "progress", "auto", "auto", "bar", "lines", "none")
	return cmd
}

func runCompile(cmd *cobra.Command, args []string, f compileFlags) error {
	ctx, stdout, stderr := cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	opt := f.options(cmd)
	if f.run != "" {
		if opt.Replays == capture.ReplaysDrop {
			return errors.New("--run names a replay, and --replays drop leaves all replays out; give one of the two")
		}
		opt.Replays = capture.ReplaysOnly
	}
	journals, err := findJournals(ctx, args)
	if err != nil {
		return err
	}
	if f.list {
		return listJournals(ctx, stdout, stderr, journals, f.json)
	}
	shard := capture.Shard{Index: f.shard[0], Of: f.shard[1], Dir: f.shardDir}
	switch {
	case shard.Of > 0 && shard.Dir == "":
		return fmt.Errorf("--shard %d/%d: want --shard-dir, too: the folder in which all shards leave what the others need", shard.Index, shard.Of)
	case shard.Of == 0 && shard.Dir != "":
		return fmt.Errorf("--shard-dir %q: this folder is for shards; give --shard i/n, too, such as 0/4", shard.Dir)
	}
	t := &traces{traceFlags: &f.traceFlags}
	if shard.Index == 0 { // it writes the traces
		if t, err = f.begin(f.run == "", journalNames(journals)...); err != nil {
			return err
		}
	}
	var progress compileProgress
	for i := range journals {
		progress.bytes += journals[i].Size
	}
	opt.Progress = progress.update
	view := term.NewProgress(stderr, f.progress)
	view.Show(progress.show)
	if os.Getenv("GOGC") == "" {
		// Most of the memory that grows with the traffic holds numbers, without pointers. Collecting garbage there takes little CPU time;
		// with Go's default of 100 %, this memory would double.
		defer debug.SetGCPercent(debug.SetGCPercent(gcPercent))
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		// Garbage counts within --memory. Below leastLimit, the garbage collector would run all the time, because of what a process needs in
		// any case.
		defer debug.SetMemoryLimit(debug.SetMemoryLimit(int64(max(opt.Memory, leastLimit))))
	}
	if shard.Index > 0 {
		_, err := capture.CompileShard(ctx, opt, shard, nil, journals...)
		view.Stop(false)
		return f.shardDone(ctx, stdout, journalHint(err))
	}
	result, err := t.write(ctx, stdout, func(sink capture.Sink) (result capture.Result, err error) {
		if f.run != "" {
			sink = f.onlyRun(sink)
		}
		if shard.Of > 0 {
			result, err = capture.CompileShard(ctx, opt, shard, sink, journals...)
		} else {
			result, err = capture.Compile(ctx, opt, sink, journals...)
		}
		view.Stop(false)
		if none := warnLeftOut(stderr, result.Journals, result.LeftOut); err == nil {
			err = none
		}
		if f.run != "" {
			result.Traces = slices.DeleteFunc(result.Traces, func(t capture.TraceResult) bool { return t.Run.String() != f.run })
		}
		return result, journalHint(err)
	})
	if err == nil && len(t.List) == 0 {
		return f.noRows(result, journalNames(journals))
	}
	return err
}

// shardDone reports that a shard that writes no trace is done.
func (f *compileFlags) shardDone(ctx context.Context, stdout io.Writer, err error) error {
	if err != nil {
		if ctx.Err() != nil {
			return errInterrupted
		}
		return err
	}
	if f.json {
		return output(stdout, map[string]any{"shard": f.shard[0], "of": f.shard[1]})
	}
	return output(stdout, fmt.Sprintf("shard %d/%d is done; shard 0 writes the trace\n", f.shard[0], f.shard[1]))
}

// journalHint adds advice to the error of a file that is not a journal.
func journalHint(err error) error {
	if errors.Is(err, journal.ErrNotJournal) {
		hint := "journals are the *" + journalSuffix + ` files of the mooncake exporter; "moonloop convert" reads telemetry in files`
		if strings.Contains(err.Error(), "of version") {
			hint = "a newer moonloop wrote it: compile with that one"
		}
		return hintError{err, hint}
	}
	return err
}

// onlyRun writes one run and ignores the others.
func (f *compileFlags) onlyRun(sink capture.Sink) capture.Sink {
	return func(p capture.Partition) (capture.TraceWriter, error) {
		if p.Run.String() != f.run {
			return nowhere{}, nil
		}
		return sink(p)
	}
}

// noRows explains why there is nothing to write, as far as the counts show.
func (f *compileFlags) noRows(result capture.Result, names []string) error {
	if f.run != "" {
		return hintError{fmt.Errorf("run %q has no rows in these journals", f.run), "--list names the runs"}
	}
	if result.Inferences == 0 {
		return hintError{
			fmt.Errorf("no trace was written from %s: the journals hold no spans of requests", few(names)),
			"spans of GenAI requests did not reach the exporter, or its sampling left all of them out: check that the application " +
				"sends spans with gen_ai attributes to a pipeline that has the exporter mooncake, or compile journals that have some",
		}
	}
	return hintError{
		fmt.Errorf("no trace was written from %s: the journals hold %s of requests, but none of them became a row", few(names), term.Counted(result.Inferences, "spans")),
		"the lines above say what was left out, and why",
	}
}

// nowhere is the destination of a trace that was not asked for.
type nowhere struct{}

func (nowhere) Write(*mooncake.Row) error   { return nil }
func (nowhere) Commit(*mooncake.Meta) error { return nil }
func (nowhere) Close() error                { return nil }

// foundJournals are the journals of a command line, each once.
type foundJournals struct {
	ctx     context.Context //nolint:containedctx // of the command: reading them ends with it, even if nothing arrives
	sources []capture.Source
	files   []fs.FileInfo  // of the sources; nil for an object, and for a file that was removed
	objects map[string]int // by URL: the index of its source
	ahead   *objects.Ahead
}

// findJournals returns the files and objects of the arguments. Those that are only in a folder that an argument names are optional.
func findJournals(ctx context.Context, args []string) ([]capture.Source, error) {
	f := foundJournals{ctx: ctx, objects: map[string]int{}}
	for _, arg := range args {
		if objects.IsURL(arg) {
			found, err := objectJournals(ctx, arg)
			if err != nil {
				return nil, err
			}
			for _, o := range found {
				f.addObject(o, o.URL != arg)
			}
			continue
		}
		info, err := os.Stat(arg)
		if err != nil {
			return nil, hintError{fmt.Errorf("journal: %w", err), "name journals, or the folder that the mooncake exporter writes to"}
		}
		if !info.IsDir() {
			f.addFile(arg, info, false)
			continue
		}
		names, err := folderJournals(arg)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if info, err = os.Stat(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, fmt.Errorf("journal: %w", err)
			}
			f.addFile(name, info, true)
		}
	}
	f.ahead = store.Ahead(ctx, journalNames(f.sources))
	return f.sources, nil
}

func (f *foundJournals) addObject(o objects.Object, optional bool) {
	at, known := f.objects[o.URL]
	if !known {
		f.objects[o.URL] = len(f.sources)
		f.add(nil, capture.Source{Name: o.URL, Size: o.Size, Optional: optional, Open: func() (io.ReadCloser, error) { return f.ahead.Open(o.URL) }})
		return
	}
	f.sources[at].Optional = f.sources[at].Optional && optional
}

// addFile adds a file; info is nil if it was removed after its folder was listed.
func (f *foundJournals) addFile(name string, info fs.FileInfo, optional bool) {
	if info == nil {
		f.add(nil, capture.Source{Name: name, Optional: optional, Open: func() (io.ReadCloser, error) { return openInput(f.ctx, name) }})
		return
	}
	at := slices.IndexFunc(f.files, func(other fs.FileInfo) bool { return other != nil && os.SameFile(other, info) })
	if at >= 0 {
		f.sources[at].Optional = f.sources[at].Optional && optional
		return
	}
	source := capture.Source{Name: name, Optional: optional, Open: func() (io.ReadCloser, error) {
		if optional && !info.Mode().IsRegular() { // a pipe that nobody meant could be waited for forever
			return nil, fmt.Errorf("%s: %w", name, journal.ErrNotJournal)
		}
		return openInput(f.ctx, name)
	}}
	if info.Mode().IsRegular() {
		source.Size = info.Size()
	}
	f.add(info, source)
}

func (f *foundJournals) add(info fs.FileInfo, source capture.Source) {
	f.files, f.sources = append(f.files, info), append(f.sources, source)
}

func journalNames(journals []capture.Source) []string {
	names := make([]string, len(journals))
	for i := range journals {
		names[i] = journals[i].Name
	}
	return names
}

// warnLeftOut warns of the journals that were left out. If none was read, it returns an error.
func warnLeftOut(stderr io.Writer, read int64, left []capture.LeftOut) error {
	for _, l := range left {
		fmt.Fprintf(stderr, "moonloop: warning: %s; it was left out\n", l.Reason)
	}
	if read == 0 && len(left) > 0 {
		return fmt.Errorf("no journal was read: name the folder that the exporter writes to, or its *%s files", journalSuffix)
	}
	return nil
}

// objectJournals returns the journals that a URL stands for: an object, or those in a folder that are named like journals.
func objectJournals(ctx context.Context, url string) ([]objects.Object, error) {
	list, err := store.List(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("journals: %w", err)
	}
	list = slices.DeleteFunc(list, func(o objects.Object) bool { return o.URL != url && !strings.HasSuffix(o.URL, journalSuffix) })
	if len(list) == 0 {
		err = fmt.Errorf("%s: there is no object of that name, and no *%s object below it: name the prefix that the Collector's exporter writes to", url, journalSuffix)
	}
	return list, err
}

// folderJournals returns the files of a folder and its subfolders that are named like journals: journals that were copied from an object store
// are in subfolders, because their names there are paths.
func folderJournals(folder string) (names []string, err error) {
	// With a separator at the end of its name, a link to a folder counts as a folder.
	err = filepath.WalkDir(folder+string(filepath.Separator), func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("folder of journals: %w", err)
		}
		if !e.IsDir() && strings.HasSuffix(name, journalSuffix) {
			names = append(names, filepath.Clean(name))
		}
		return nil
	})
	if err == nil && names == nil {
		err = fmt.Errorf("folder %s has no *%s file: name the folder that the exporter writes to, or the files", folder, journalSuffix)
	}
	return names, err
}

// compileProgress is the progress of a compile.
type compileProgress struct {
	bytes int64 // of all journals

	mu          sync.Mutex
	stage       capture.Stage
	done, total int64
}

// update notes a stage.
func (p *compileProgress) update(stage capture.Stage, done, total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stage, p.done, p.total = stage, done, total
}

// show returns what a view shows of the compilation.
func (p *compileProgress) show() (text string, part float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stage == "" {
		return "", -1
	}
	if p.stage == capture.StageRead {
		return fmt.Sprintf("%s: %s of %s", p.stage, term.Size(p.done), term.Size(p.bytes)), -1
	}
	return fmt.Sprintf("%s: %s of %s", p.stage, term.Comma(p.done), term.Comma(p.total)), -1
}
