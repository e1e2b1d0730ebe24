// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package deploy holds what people deploy of the examples to those who will read it: Kubernetes manifests, the kustomization
// and the Helm chart to the types of Kubernetes, and the compose file to the library of Docker Compose.
//
// It is a module of its own, which no workspace holds: those libraries have hundreds of dependencies, and none of them belongs
// into what others import or into what is built for an image. TestAcceptanceKubernetes, in test/acceptance, has a real API
// server read the same files.
package deploy
