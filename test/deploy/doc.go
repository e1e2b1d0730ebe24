// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package deploy checks those examples that people deploy, with the code of the programs that read them: Kubernetes manifests, the
// kustomization and the Helm chart with the types of Kubernetes, and the compose file with the library of Docker Compose.
//
// It is a separate module, outside the workspace: those libraries have hundreds of dependencies, and none of them belongs
// in what others import, or in what is built for an image. TestAcceptanceKubernetes, in test/acceptance, has a real API server
// read the same files.
package deploy
