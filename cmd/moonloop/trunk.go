// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/internal/atomicfile"
	"github.com/moonloop/moonloop/internal/term"
	"github.com/moonloop/moonloop/mooncake"
)

// newTrunkCommand returns the command that makes the list by which Collectors sample.
func newTrunkCommand() *cobra.Command {
	var opt capture.TrunkOptions
	var out string
	var force bool
	cmd := &cobra.Command{
		Use:   "trunk JOURNAL... --out LIST",
		Short: "List the beginnings that many prompts share, for Collectors that sample",
		Args:  someInputs("one or more journals or folders of journals", "name the *.journal files, or the folder that they are in"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stderr := cmd.Context(), cmd.ErrOrStderr()
			if out == "" {
				return hintError{errors.New("--out is missing: no file is given for the list"), "name a file: --out trunk.json"}
			}
			over := atomicfile.Nothing
			if force {
				over = atomicfile.Regular
			}
			if err := atomicfile.Vacant(out, over); err != nil {
				return exists(fmt.Errorf("--out: %w", err))
			}
			journals, err := findJournals(ctx, args)
			if err != nil {
				return err
			}
			opt.Tool = cmd.CommandPath() + " " + version()
			result, err := capture.Trunk(ctx, opt, journals...)
			if none := warnLeftOut(stderr, int64(len(journals)-len(result.LeftOut)), result.LeftOut); none != nil {
				return none
			}
			if err != nil {
				return journalHint(err)
			}
			if result.Damage > 0 {
				fmt.Fprintf(stderr, "moonloop: warning: skipped %s in the journals\n", term.Counted(result.Damage, "damaged places"))
			}
			if err := writeWhole(out, over, result.List.Write); err != nil {
				return exists(err)
			}
			return output(cmd.OutOrStdout(), trunkText(out, result))
		},
	}
	fs := cmd.Flags()
	add(fs, &out, "out,o", "", aFile)
	add(fs, &force, "force", false)
	add(fs, &opt.Share, "share", mooncake.TrunkShare, number(1e-6, 0.5))
	add(fs, &opt.Prompts, "max-prompts", capture.DefaultTrunkPrompts, whole(1, 1<<24))
	add(fs, &opt.Seed, "seed", 1)
	return cmd
}

// trunkText describes a list.
func trunkText(name string, r capture.TrunkResult) string {
	var b strings.Builder
	for _, d := range r.List.Domains {
		fmt.Fprintf(&b, "hash domain %s: %s, from %s prompts", d.Domain, term.Counted(int64(len(d.Values)), "shared beginnings"), term.Comma(d.Prompts))
		if d.Key != "" {
			b.WriteString(", key " + d.Key)
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "%s: fingerprint %s, made of %s of %s prompts\n", name, mooncake.FingerprintText(r.List.Fingerprint()),
		term.Comma(int64(r.Used)), term.Comma(r.Prompts))
	return b.String()
}
