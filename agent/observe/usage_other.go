// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package observe

import "time"

func cpuTime() (time.Duration, bool) { return 0, false }

func maxRSS() int64 { return 0 }
