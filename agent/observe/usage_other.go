// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package observe

import "time"

func usage() (cpu time.Duration, maxRSS int64, ok bool) { return 0, 0, false }
