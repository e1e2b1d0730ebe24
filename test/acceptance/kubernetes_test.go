// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package acceptance

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moonloop/moonloop/internal/testport"
)

// cluster is a control plane without nodes: pods are created, but never run.
type cluster struct {
	bin, kubeconfig string
}

// TestAcceptanceKubernetes applies every manifest, the kustomization and the rendered chart to a real API server, with strict validation
// of their fields, and real controllers create what they describe. The resources of operators are validated with the operators' own
// definitions.
func TestAcceptanceKubernetes(t *testing.T) {
	c := startCluster(t, setting(t, "MOONLOOP_KUBERNETES"))
	examples := filepath.Join("..", "..", "examples")
	for _, definition := range []string{"podmonitors.yaml", "opentelemetrycollectors.yaml"} {
		c.apply(t, filepath.Join(c.bin, "definitions", definition))
	}
	// kubectl wait fails on a definition that has no status yet.
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		out, err := c.run("wait", "--for=condition=Established", "--timeout=1m", "customresourcedefinition", "--all")
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v\n%s", err, out)
		}
	}

	// A config map and a secret are created as the first lines of the manifests say.
	c.kubectl(t, "create", "configmap", "moonloop-trace", "--from-file=trace.jsonl="+filepath.Join(examples, "demo.jsonl"),
		"--from-file=trace.meta.json="+filepath.Join(examples, "demo.meta.json"))
	c.kubectl(t, "create", "secret", "generic", "moonloop", "--from-literal=hash-key="+strings.Repeat("5eed", 16))
	c.kubectl(t, "apply", "--server-side", "--validate=strict", "-k", examples)

	manifests, err := filepath.Glob(filepath.Join(examples, "kubernetes", "*.yaml"))
	if err != nil || len(manifests) == 0 {
		t.Fatalf("no manifests: %v", err)
	}
	for _, manifest := range manifests {
		c.apply(t, manifest)
	}
	c.apply(t, c.render(t, examples, "replay.kind=Job"))
	c.apply(t, c.render(t, examples, "replay.kind=IndexedJob,replay.shards=4,replay.startAt=2030-01-01T00:00:00Z,fullnameOverride=chart-shards"))
	c.apply(t, c.render(t, examples, "replay.kind=CronJob,fullnameOverride=chart-nightly"))
	t.Run("a misspelt field is refused", func(t *testing.T) {
		content, err := os.ReadFile(filepath.Join(examples, "kubernetes", "replay-job.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		broken := filepath.Join(t.TempDir(), "broken.yaml")
		if err := os.WriteFile(broken, bytes.Replace(content, []byte("backoffLimit"), []byte("backofLimit"), 1), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := c.run("apply", "--server-side", "--validate=strict", "-f", broken); err == nil || !strings.Contains(out, "backofLimit") {
			t.Errorf("%v: %s", err, out)
		}
	})

	// With Helm itself, which queries the cluster: an upgrade keeps the key that the installation has drawn.
	c.helm(t, "install", "drawn", filepath.Join(examples, "helm", "moonloop"))
	key := c.kubectl(t, "get", "secret", "drawn-moonloop", "--output", "jsonpath={.data.hash-key}")
	c.helm(t, "upgrade", "drawn", filepath.Join(examples, "helm", "moonloop"), "--set", "gateway.replicas=2")
	if after := c.kubectl(t, "get", "secret", "drawn-moonloop", "--output", "jsonpath={.data.hash-key}"); after != key || len(key) != 88 {
		t.Errorf("the key of %d characters (want 88) has changed with an upgrade, or has the wrong length", len(key))
	}

	// The controllers create the right pods for what was applied.
	for _, want := range []struct {
		selector string
		pods     int
	}{
		{"app.kubernetes.io/name=moonloop-gateway,!app.kubernetes.io/instance", 1},
		{"app.kubernetes.io/name=chat", 2},
		{"app.kubernetes.io/instance=drawn", 1}, // the second waits for the first, which never runs
		{"batch.kubernetes.io/job-name=moonloop-replay", 1},
		{"batch.kubernetes.io/job-name=moonloop-replay-shards", 4},
		{"batch.kubernetes.io/job-name=acceptance-moonloop-replay-1", 1},
		{"batch.kubernetes.io/job-name=chart-shards-replay-1", 4},
	} {
		pods := c.pods(t, want.selector, want.pods)
		if want.pods == 4 {
			checkShards(t, want.selector, pods)
		}
	}
	c.kubectl(t, "create", "job", "now", "--from=cronjob/moonloop-nightly")
	c.pods(t, "batch.kubernetes.io/job-name=now", 1)
	for _, claim := range []string{"data-moonloop-gateway-0", "moonloop-results", "acceptance-moonloop-results"} {
		c.kubectl(t, "get", "persistentvolumeclaim", claim)
	}
	t.Logf("%d manifests, the kustomization and three renderings of the chart applied", len(manifests))
}

// pod is the part of a pod that this test reads.
type pod struct {
	Metadata struct {
		Name        string            `json:"name"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		Containers []struct {
			Args []string `json:"args"`
			Env  []struct {
				Name string `json:"name"`
			} `json:"env"`
		} `json:"containers"`
	} `json:"spec"`
}

// checkShards requires that the pods of an Indexed Job have each number once, in a variable that their arguments use.
func checkShards(t *testing.T, job string, pods []pod) {
	t.Helper()
	var indexes []string
	for _, p := range pods {
		indexes = append(indexes, p.Metadata.Annotations["batch.kubernetes.io/job-completion-index"])
		container := p.Spec.Containers[0]
		if !slices.Contains(container.Args, "--shard=$(JOB_COMPLETION_INDEX)/4") {
			t.Errorf("%s: %v has no shard", job, container.Args)
		}
		known := false
		for _, variable := range container.Env {
			known = known || variable.Name == "JOB_COMPLETION_INDEX"
		}
		if !known {
			t.Errorf("%s: the controller gave %s no index", job, p.Metadata.Name)
		}
	}
	slices.Sort(indexes)
	if want := []string{"0", "1", "2", "3"}; !slices.Equal(indexes, want) {
		t.Errorf("%s: pods with the indexes %v, want %v", job, indexes, want)
	}
}

// pods waits until controllers have created this many pods.
func (c *cluster) pods(t *testing.T, selector string, want int) []pod {
	t.Helper()
	var list struct {
		Items []pod `json:"items"`
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		list.Items = nil
		if err := json.Unmarshal([]byte(c.kubectl(t, "get", "pods", "--selector", selector, "--output", "json")), &list); err != nil {
			t.Fatal(err)
		}
		if len(list.Items) == want {
			return list.Items
		}
		if time.Now().After(deadline) {
			events, _ := c.run("get", "events")
			t.Fatalf("%d pods of %s, want %d\n%s", len(list.Items), selector, want, events)
		}
	}
}

// render renders the chart with all options, and returns the file.
func (c *cluster) render(t *testing.T, examples, values string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), filepath.Join(c.bin, "helm"), "template", "acceptance", filepath.Join(examples, "helm", "moonloop"),
		"--namespace", "default", "--kube-version", "1.36.3", "--set", "networkPolicy.enabled=true,podMonitor.enabled=true,podMonitor.sidecars.app=chat,"+
			"replay.enabled=true,replay.url=http://vllm:8000,"+values).Output()
	if err != nil {
		if failed, ok := errors.AsType[*exec.ExitError](err); ok {
			t.Fatalf("%v\n%s", err, failed.Stderr)
		}
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "chart.yaml")
	if err := os.WriteFile(name, out, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func (c *cluster) helm(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(c.bin, "helm"), append(args, "--kubeconfig", c.kubeconfig)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func (c *cluster) apply(t *testing.T, file string) {
	t.Helper()
	c.kubectl(t, "apply", "--server-side", "--validate=strict", "-f", file)
}

func (c *cluster) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := c.run(args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (c *cluster) run(args ...string) (string, error) {
	cmd := exec.CommandContext(context.Background(), filepath.Join(c.bin, "kubectl"), append([]string{"--kubeconfig", c.kubeconfig}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if err != nil {
		return stdout.String() + stderr.String(), err
	}
	return stdout.String(), nil
}

// startCluster starts etcd, an API server and the controllers, which end with the test.
func startCluster(t *testing.T, bin string) *cluster {
	t.Helper()
	dir := artefacts(t)
	secrets := t.TempDir()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	tokens := writeFile(t, secrets, "tokens.csv", "of-a-test,admin,1,system:masters\n")
	accounts := writeFile(t, secrets, "accounts.pem",
		string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})))
	client, peer, secure, manager := testport.Port(t), testport.Port(t), testport.Port(t), testport.Port(t)

	start(t, dir, "etcd", nil, "etcd", "--data-dir", filepath.Join(secrets, "etcd"), "--unsafe-no-fsync",
		"--listen-client-urls", "http://127.0.0.1:"+client, "--advertise-client-urls", "http://127.0.0.1:"+client,
		"--listen-peer-urls", "http://127.0.0.1:"+peer, "--initial-advertise-peer-urls", "http://127.0.0.1:"+peer,
		"--initial-cluster", "default=http://127.0.0.1:"+peer)
	start(t, dir, "kube-apiserver", nil, filepath.Join(bin, "kube-apiserver"), "--etcd-servers", "http://127.0.0.1:"+client,
		"--bind-address", "127.0.0.1", "--secure-port", secure, "--cert-dir", filepath.Join(secrets, "certificates"),
		"--service-cluster-ip-range", "10.0.0.0/24", "--service-account-issuer", "https://kubernetes.default.svc",
		"--service-account-key-file", accounts, "--service-account-signing-key-file", accounts,
		"--authorization-mode", "RBAC", "--token-auth-file", tokens, "--disable-admission-plugins", "ServiceAccount")
	c := &cluster{bin: bin, kubeconfig: writeFile(t, secrets, "kubeconfig", fmt.Sprintf(`
apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: "https://127.0.0.1:%s", insecure-skip-tls-verify: true}}]
users: [{name: admin, user: {token: of-a-test}}]
contexts: [{name: test, context: {cluster: test, user: admin, namespace: default}}]
current-context: test
`, secure))}
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(time.Second) {
		if _, err := c.run("get", "--raw", "/readyz"); err == nil {
			if _, err := c.run("get", "namespace", "default"); err == nil {
				break
			}
		}
		if time.Now().After(deadline) {
			out, err := c.run("get", "--raw", "/readyz?verbose")
			t.Fatalf("the API server is not ready: %v\n%s", err, out)
		}
	}
	start(t, dir, "kube-controller-manager", nil, filepath.Join(bin, "kube-controller-manager"), "--kubeconfig", c.kubeconfig,
		"--authentication-kubeconfig", c.kubeconfig, "--authorization-kubeconfig", c.kubeconfig, "--bind-address", "127.0.0.1",
		"--secure-port", manager, "--cert-dir", filepath.Join(secrets, "certificates"), "--leader-elect=false",
		"--service-account-private-key-file", accounts)
	return c
}

func writeFile(t *testing.T, dir, name, content string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
