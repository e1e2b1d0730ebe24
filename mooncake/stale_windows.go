// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import "os"

// claim has nothing to do: nobody can remove a file that is open.
func claim(*os.File) bool { return true }

// removeStale removes a temporary file, which fails while its writer has it open.
func removeStale(name string) { _ = os.Remove(name) }
