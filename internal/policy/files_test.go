// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// module is the path of the module whose repository this is.
const module = "github.com/moonloop/moonloop"

// repositoryRoot returns the folder that holds this module's go.mod.
func repositoryRoot(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
		t.Fatalf("the repository is not where this package expects it: %v", err)
	}
	return root
}

// built are the folders and files at the root that contain no sources, such as build results.
var built = []string{".git", "bin", "build", "out"}

// eachFile calls visit for every regular file of the repository, with its slash-separated path from the root. Build results are left out.
func eachFile(t *testing.T, visit func(name string, content []byte)) {
	t.Helper()
	root := os.DirFS(repositoryRoot(t))
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains(built, name):
			return fs.SkipDir
		case slices.Contains(built, name): // .git is a file in a linked worktree
			return nil
		case !entry.Type().IsRegular():
			return nil
		}
		content, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		visit(name, content)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// eachGoFile calls visit for every Go file written by hand: generated files follow their generator's rules, and testdata is input.
func eachGoFile(t *testing.T, visit func(name string, content []byte)) {
	t.Helper()
	seen := 0
	eachFile(t, func(name string, content []byte) {
		if !strings.HasSuffix(name, ".go") || strings.Contains("/"+name, "/testdata/") || isGenerated(content) {
			return
		}
		seen++
		visit(name, content)
	})
	if seen == 0 {
		t.Fatal("no Go file found: these tests would pass on an empty repository")
	}
}

// isGenerated reports whether a file carries the marker of https://go.dev/s/generatedcode.
func isGenerated(content []byte) bool {
	for line := range strings.Lines(string(content)) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "// Code generated ") && strings.HasSuffix(line, " DO NOT EDIT.") {
			return true
		}
		if strings.HasPrefix(line, "package ") {
			return false
		}
	}
	return false
}
