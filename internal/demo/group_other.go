// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package demo

import "syscall"

func ownGroup() *syscall.SysProcAttr { return nil }
