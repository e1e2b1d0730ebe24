// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

// This file handles s3:// and gs:// URLs in the arguments of a command. Traces are read by mooncake.Open, and journals one after the
// other. Folders of runs are downloaded before a verb begins, and the output of a verb is uploaded when it is complete. So verbs handle
// only files, and objects in the store are always complete. Other URLs are refused here, except as names of traces.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/moonloop/moonloop/agent/report/page"
	"github.com/moonloop/moonloop/internal/objects"
	"github.com/moonloop/moonloop/mooncake"
)

// store is the client for all URLs of a command.
var store objects.Store

func init() {
	for _, scheme := range objects.Schemes {
		mooncake.RegisterScheme(scheme, func(ctx context.Context, url string) (io.ReadCloser, int64, error) {
			r, err := store.Open(ctx, url)
			if err != nil {
				return nil, 0, err
			}
			return r, r.Size(), nil
		})
	}
}

var (
	// writtenFlags name files or folders that a verb writes. Those of replacedFlags are replaced without --force.
	writtenFlags  = []string{"out", "xlsx", "parquet", "html", "junit"}
	replacedFlags = []string{"html", "junit"}
	// localFlags name files and folders that a verb writes in steps, or reads other than as a trace: a store has only complete objects.
	localFlags = []string{
		"again", "clients", "config", "export", "journal", "model-config", "quarantine", "record", "request-rate-series", "save-prompts", "shard-dir", "temp-dir",
		"traces",
	}
	// traceVerbs have traces as arguments, which mooncake.Open also fetches from http:// and https:// URLs.
	traceVerbs = []string{"convert", "inspect", replayVerb, "search", "transform"}
	// runVerbs have folders of runs as arguments.
	runVerbs = []string{"report", "merge", "compare", "twin", "router"}
	// localVerbs read files that are still being written, by themselves or by others.
	localVerbs = []string{"agent", "shadow", "demo"}
	// wholeFiles mark a folder as complete: that of a run, of several runs, or of a search. They are uploaded last.
	wholeFiles = []string{"summary.json", "runs.json", "search.json"}
)

const (
	takeAway = 10 * time.Minute // the maximum time for uploading results, also after an interrupt
	uploads  = 8                // transfers at the same time
)

// stage has the local copies of a command's objects.
type stage struct {
	cmd     *cobra.Command
	dir     string
	written []written
	names   [][2]string // folders here, and the URLs that they stand for
}

// written is a file or folder that a verb writes.
type written struct {
	local, url string
	replace    bool
}

// begin downloads the folders of runs that the arguments name, and replaces URLs in flags by names of local files. It changes args in place.
func (s *stage) begin(cmd *cobra.Command, args []string) error {
	s.cmd = cmd
	if err := refuseOtherURLs(cmd, args); err != nil {
		return err
	}
	now := time.Now()
	for i, arg := range args {
		if objects.IsURL(arg) {
			if slices.Contains(localVerbs, cmd.Name()) {
				return fmt.Errorf("%s: %s reads journals while they are written, which object storage does not allow: name a folder on this machine", arg, cmd.Name())
			}
			args[i] = objects.OnDay(arg, now)
		}
	}
	if f := cmd.Flags().Lookup("resume"); f != nil && objects.IsURL(f.Value.String()) {
		return errors.New("--resume: a replay is resumed where its files are, and object storage has only complete files: name the folder")
	}
	for _, name := range localFlags {
		if f := cmd.Flags().Lookup(name); f != nil && objects.IsURL(f.Value.String()) {
			return fmt.Errorf("--%s %s: name a file or a folder on this machine; URLs of object storage are for traces, journals, runs and results", name, f.Value)
		}
	}
	ownPage := cmd.Name() == "report" && len(args) == 1 && objects.IsURL(args[0]) && !cmd.Flags().Changed("out")
	if ownPage { // the page is in the folder of the run
		if err := cmd.Flags().Set("out", strings.TrimSuffix(args[0], "/")+"/"+page.File); err != nil {
			return err
		}
	}
	force := cmd.Flags().Lookup("force")
	for _, name := range writtenFlags {
		f := cmd.Flags().Lookup(name)
		if f == nil || !objects.IsURL(f.Value.String()) {
			continue
		}
		replace := ownPage && name == "out" || slices.Contains(replacedFlags, name) || force != nil && force.Value.String() == "true"
		if err := s.write(cmd.Context(), f, objects.OnDay(f.Value.String(), now), replace); err != nil {
			return err
		}
	}
	if slices.Contains(runVerbs, cmd.Name()) {
		for i, arg := range args {
			if !objects.IsURL(arg) {
				continue
			}
			local, err := s.download(cmd.Context(), arg)
			if err != nil {
				return err
			}
			args[i] = local
		}
	}
	if len(s.names) > 0 {
		cmd.SetOut(urlWriter{cmd.OutOrStdout(), s})
		cmd.SetErr(urlWriter{cmd.ErrOrStderr(), s})
	}
	return nil
}

// anyURL matches the scheme of a URL. The name of a Windows drive is shorter.
var anyURL = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]+://`)

// refuseOtherURLs returns an error if an argument or a flag is a URL that is not of object storage, but the verb would use it as the name
// of a file or a folder.
func refuseOtherURLs(cmd *cobra.Command, args []string) error {
	if own := cmd.ArgsLenAtDash(); own >= 0 {
		args = args[:own] // the others are flags of replay
	}
	if slices.Contains(traceVerbs, cmd.Name()) {
		args = nil
	}
	here := slices.Contains(localVerbs, cmd.Name())
	for _, arg := range args {
		if err := otherURL(arg, cmd.Name()+" reads", here); err != nil {
			return err
		}
	}
	for _, name := range slices.Concat(writtenFlags, localFlags) {
		f := cmd.Flags().Lookup(name)
		if f == nil {
			continue
		}
		if err := otherURL(f.Value.String(), "--"+name+" is for", here || slices.Contains(localFlags, name)); err != nil {
			return err
		}
	}
	return nil
}

// otherURL returns an error if a name is a URL, but not of object storage. The error does not show credentials in the URL.
func otherURL(name, use string, here bool) error {
	scheme := anyURL.FindString(name)
	if scheme == "" || objects.IsURL(name) {
		return nil
	}
	places := "files and folders on this machine, and objects in s3:// or gs://"
	if here {
		places = "files and folders on this machine"
	}
	advice := "name a file or a folder on this machine, and copy it with another tool, such as curl"
	if strings.EqualFold(scheme, "file://") {
		advice = "leave " + scheme + " out"
	}
	return hintError{fmt.Errorf("%s: %s %s, and not %s", mooncake.PublicName(name), use, places, scheme), advice}
}

// here returns a name in the temporary folder for the object or folder that a URL names.
func (s *stage) here(url string) (string, error) {
	if s.dir == "" {
		dir, err := os.MkdirTemp("", "moonloop-objects-*")
		if err != nil {
			return "", fmt.Errorf("no temporary folder for %s: %w; set $TMPDIR to another one", url, err)
		}
		s.dir = dir
	}
	folder := filepath.Join(s.dir, strconv.Itoa(len(s.names)))
	local := filepath.Join(folder, path.Base(url))
	s.names = append(s.names, [2]string{folder, above(url)}) // so that the sidecar of a trace has a name, too
	if s.cmd.Annotations == nil {
		s.cmd.Annotations = map[string]string{}
	}
	s.cmd.Annotations[folder] = above(url) // for urlOf
	return local, os.Mkdir(folder, 0o700)
}

// above returns the URL of the folder that an object is in.
func above(url string) string { return strings.TrimSuffix(url, "/"+path.Base(url)) }

// urlOf returns the URL that a local copy of a file or a folder stands for; its own name, if it is not a copy.
func urlOf(cmd *cobra.Command, name string) string {
	for folder, url := range cmd.Annotations {
		if below, is := strings.CutPrefix(name, folder+string(filepath.Separator)); is {
			return url + "/" + filepath.ToSlash(below)
		}
	}
	return name
}

// write sets a flag to a local file instead of a URL.
func (s *stage) write(ctx context.Context, f *pflag.Flag, url string, replace bool) error {
	if slices.Contains(localVerbs, s.cmd.Name()) {
		return fmt.Errorf("--%s %s: %s reads what it has written while it runs: name a folder on this machine, and copy it afterwards", f.Name, url, s.cmd.Name())
	}
	if journal := s.cmd.Flags().Lookup("journal"); journal != nil && journal.Value.String() == "" {
		return fmt.Errorf("--%s %s: name a folder on this machine with --journal, too: what is captured stays there until it is uploaded, also after a crash", f.Name, url)
	}
	url = strings.TrimSuffix(url, "/")
	for _, name := range []string{url, mooncake.MetaName(url)} {
		there, err := store.List(ctx, name)
		if err != nil {
			return fmt.Errorf("--%s: %w", f.Name, err)
		}
		if len(there) > 0 && !replace {
			return hintError{fmt.Errorf("--%s: %s: %w", f.Name, there[0].URL, fs.ErrExist), "choose another name, or replace what is there with --force"}
		}
	}
	local, err := s.here(url)
	if err != nil {
		return err
	}
	s.written = append(s.written, written{local, url, replace})
	return f.Value.Set(local)
}

// download copies an object, or all objects of a folder, and returns the name of the copy.
func (s *stage) download(ctx context.Context, url string) (string, error) {
	url = strings.TrimSuffix(url, "/")
	list, err := store.List(ctx, url)
	if err != nil {
		return "", err
	}
	if len(list) == 0 {
		return "", hintError{fmt.Errorf("%s: %w", url, fs.ErrNotExist), "it is neither an object nor a folder of objects"}
	}
	local, err := s.here(url)
	if err != nil {
		return "", err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(uploads)
	for _, o := range list {
		g.Go(func() error {
			below := filepath.FromSlash(strings.TrimPrefix(strings.TrimPrefix(o.URL, url), "/"))
			if below != "" && !filepath.IsLocal(below) {
				return fmt.Errorf("%s: the key is not the name of a file", o.URL)
			}
			file := filepath.Join(local, below)
			return errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), store.Fetch(ctx, o.URL, file))
		})
	}
	return local, g.Wait()
}

// finish uploads what was written, and removes the local files. It returns the error of the command, or that of the upload.
func (s *stage) finish(ctx context.Context, err error) error {
	if s.dir == "" {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), takeAway)
	defer cancel()
	for _, w := range s.written {
		if _, e := os.Lstat(w.local); e != nil {
			continue // the verb did not write it
		}
		if statusOf(err) == exitUsage {
			return fmt.Errorf("%w; what was written so far stays in %s, and is not in object storage", err, s.dir)
		}
		if e := w.upload(ctx); e != nil {
			return fmt.Errorf("%w; the results stay in %s: copy them with another tool", e, s.dir)
		}
	}
	_ = os.RemoveAll(s.dir)
	fmt.Fprint(s.cmd.OutOrStdout(), s.cmd.Annotations[afterUpload])
	return err
}

// afterUpload is the annotation of a command with what it says once its results are in the store.
const afterUpload = "after upload"

// sayWhere prints a line that says where a result is: at once, or after the upload if the result is for a store, since the upload may fail.
func sayWhere(cmd *cobra.Command, out, line string) {
	if urlOf(cmd, out) != out {
		cmd.Annotations[afterUpload] += line
		return
	}
	fmt.Fprint(cmd.OutOrStdout(), line)
}

// upload copies a file with its metadata file, or a folder, to the store. The file that makes the result complete comes last.
func (w written) upload(ctx context.Context) error {
	var files []string
	err := filepath.WalkDir(filepath.Dir(w.local), func(name string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			files = append(files, name)
		}
		return err
	})
	if err != nil {
		return err
	}
	rank := func(name string) int {
		switch {
		case slices.Contains(wholeFiles, filepath.Base(name)):
			return 1_000_000 - strings.Count(name, string(filepath.Separator)) // those of inner folders before those of outer ones
		case strings.HasSuffix(name, ".meta.json"):
			return 0
		}
		return 1
	}
	slices.SortStableFunc(files, func(a, b string) int { return rank(a) - rank(b) })
	url := func(name string) string {
		below, _ := filepath.Rel(filepath.Dir(w.local), name)
		return above(w.url) + "/" + filepath.ToSlash(below)
	}
	if w.replace { // while some of its files are new, a folder is not complete
		for _, name := range files {
			if rank(name) > 1 {
				if err := store.Remove(ctx, url(name)); err != nil {
					return err
				}
			}
		}
	}
	for len(files) > 0 { // those of one rank together
		n := slices.IndexFunc(files, func(name string) bool { return rank(name) != rank(files[0]) })
		if n < 0 {
			n = len(files)
		}
		g, ctx := errgroup.WithContext(ctx)
		g.SetLimit(uploads)
		for _, name := range files[:n] {
			g.Go(func() error { return store.Put(ctx, url(name), name, w.replace) })
		}
		if err := g.Wait(); err != nil {
			return err
		}
		files = files[n:]
	}
	return nil
}

// public replaces the names of local files by URLs.
func (s *stage) public(text []byte) []byte {
	for _, n := range s.names {
		text = bytes.ReplaceAll(text, []byte(n[0]+string(filepath.Separator)), []byte(n[1]+"/"))
	}
	return text
}

// urlWriter replaces local names by URLs in the output of a verb.
type urlWriter struct {
	io.Writer
	stage *stage
}

func (w urlWriter) Write(p []byte) (int, error) {
	if _, err := w.Writer.Write(w.stage.public(p)); err != nil {
		return 0, err
	}
	return len(p), nil
}
