// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: dashboards FOLDER")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "dashboards: error:", err)
		os.Exit(1)
	}
}

// write writes one file for each dashboard.
func write(folder string) error {
	for _, b := range boards {
		built, err := b.build()
		if err != nil {
			return fmt.Errorf("%s: %w", b.uid, err)
		}
		content, err := json.MarshalIndent(built, "", "  ")
		if err != nil {
			return fmt.Errorf("%s: %w", b.uid, err)
		}
		if err := os.WriteFile(filepath.Join(folder, b.uid+".json"), append(content, '\n'), 0o644); err != nil { //nolint:gosec // to be read by all
			return err
		}
	}
	return nil
}
