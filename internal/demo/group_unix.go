// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package demo

import "syscall"

// ownGroup keeps a terminal's Ctrl-C from the child: it is for the replay, which then stops the child.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
