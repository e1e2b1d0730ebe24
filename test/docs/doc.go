// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package docs runs the pages of the folder docs, and the README, as their readers do: every command of a page runs, and prints
// what the page says.
//
// # Blocks
//
// The info string of a fenced block says what is done with it:
//
//	sh              its commands run with bash, in the order of the page, all blocks of a page in one shell
//	text, console   lines that the block sh before it prints, in this order
//	sh acceptance   commands that need what a test does not have, such as a container engine. They are parsed by bash and not run:
//	                the files that they name exist, make has their targets, and moonloop accepts their flags
//	yaml            is YAML; the files that it names exist, and its "run:" scripts are checked as "sh acceptance"
//	json            is JSON
//
// A block without info string is a picture. A block after a line "<!-- ci: NAME -->" belongs to .ci/run, which runs it. Any other
// info string is an error, so that no command is left out by mistake.
//
// # What a command prints
//
// A line that a page shows must be printed, each number and word as it is, with these exceptions, so that pages show real output:
//
//   - a number with a decimal point is measured, and stands for any number;
//   - … stands for anything; a line … stands for any lines, and other lines may be between two that the page shows;
//   - white space stands for any white space, since columns are as wide as their widest number;
//   - the class after "Verdict" stands for any class, since it judges the machine that runs the test, too. For the same reason an
//     invalid measurement does not change a replay's exit status here.
//
// # Where the commands run
//
// Each page has a folder of its own with copies of examples and otelcol-config.yaml, and links to everything else in the repository. bin is
// on the PATH and has moonloop and, for pages that name it, otelcol-moonloop. The ports that a page and the copies name are replaced by
// free ones, and so are those on which `moonloop capture`, `moonloop simulate` and `moonloop agent` listen. An engine, `moonloop simulate`,
// answers at http://localhost:8000, unless the page starts one itself.
package docs
