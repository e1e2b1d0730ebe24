// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
)

const examples = "../../examples"

// untyped are resources of other projects' operators that have no small Go module with their types. A real API server validates them with
// their own definitions.
var untyped = []string{"opentelemetry.io/v1beta1, Kind=OpenTelemetryCollector"}

// knownTypes has the types of Kubernetes, and of the Prometheus Operator.
func knownTypes(t *testing.T) *runtime.Scheme {
	t.Helper()
	known := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(known), monitoring.AddToScheme(known)); err != nil {
		t.Fatal(err)
	}
	return known
}

// decode reads YAML documents into their types. It refuses unknown and repeated fields, and two objects of one name.
func decode(t *testing.T, content []byte) []runtime.Object {
	t.Helper()
	objects, err := decodeAll(knownTypes(t), content)
	if err != nil {
		t.Fatalf("%v\n%s", err, content)
	}
	return objects
}

func decodeAll(known *runtime.Scheme, content []byte) ([]runtime.Object, error) {
	strict := json.NewSerializerWithOptions(json.DefaultMetaFactory, known, known, json.SerializerOptions{Yaml: true, Strict: true})
	documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	var objects []runtime.Object
	var seen []string
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, err
		}
		if empty(document) {
			continue
		}
		object, kind, err := strict.Decode(document, nil, nil)
		if kind != nil && slices.Contains(untyped, kind.String()) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%w\n%s", err, document)
		}
		name := id(object)
		if slices.Contains(seen, name) {
			return nil, fmt.Errorf("two objects are %s", name)
		}
		seen, objects = append(seen, name), append(objects, object)
	}
}

// empty reports whether a document has only comments.
func empty(document []byte) bool {
	for line := range bytes.Lines(document) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' && !bytes.Equal(line, []byte("---")) {
			return false
		}
	}
	return true
}

// id names an object, such as Service/moonloop-gateway.
func id(object runtime.Object) string {
	name := "?"
	if accessor, err := meta.Accessor(object); err == nil {
		name = accessor.GetName()
	}
	return object.GetObjectKind().GroupVersionKind().Kind + "/" + name
}

func ids(objects []runtime.Object) []string {
	names := make([]string, len(objects))
	for i, object := range objects {
		names[i] = id(object)
	}
	slices.Sort(names)
	return names
}

// find returns the object with an id.
func find[T runtime.Object](t *testing.T, objects []runtime.Object, name string) (found T) {
	t.Helper()
	for _, object := range objects {
		if typed, ok := object.(T); ok && id(object) == name {
			return typed
		}
	}
	t.Fatalf("no %s among %v", name, ids(objects))
	return found
}

// read returns the objects of an example.
func read(t *testing.T, name string) []runtime.Object {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(examples, name))
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, content)
}

// TestManifests decodes each manifest strictly, and requires the expected objects.
func TestManifests(t *testing.T) {
	want := map[string][]string{
		"agent.yaml":                 {"Deployment/moonloop-agent", "PersistentVolumeClaim/moonloop-agent", "Service/moonloop-agent"},
		"fleet-capture.yaml":         {"DaemonSet/moonloop-capture"},
		"fleet-compile.yaml":         {"CronJob/moonloop-fleet-compile"},
		"fleet-replay.yaml":          {"CronJob/moonloop-fleet-replay"},
		"fleet-report.yaml":          {"CronJob/moonloop-fleet-report"},
		"gateway.yaml":               {"Service/moonloop-gateway", "StatefulSet/moonloop-gateway"},
		"network-policy.yaml":        {"NetworkPolicy/moonloop-gateway"},
		"operator.yaml":              {},
		"pod-disruption-budget.yaml": {"PodDisruptionBudget/moonloop-gateway"},
		"pod-monitor.yaml":           {"PodMonitor/moonloop-gateway", "PodMonitor/moonloop-sidecar"},
		"replay-cronjob.yaml":        {"CronJob/moonloop-nightly"},
		"compile-indexed-job.yaml":   {"Job/moonloop-compile"},
		"replay-indexed-job.yaml":    {"Job/moonloop-replay-shards"},
		"replay-job.yaml":            {"Job/moonloop-replay", "PersistentVolumeClaim/moonloop-results"},
		"sidecar.yaml":               {"Deployment/chat"},
	}
	names, err := filepath.Glob(filepath.Join(examples, "kubernetes/*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		name = filepath.Base(name)
		if got := ids(read(t, "kubernetes/"+name)); !slices.Equal(got, want[name]) {
			t.Errorf("%s has %v, want %v", name, got, want[name])
		}
		delete(want, name)
	}
	if len(want) > 0 {
		t.Errorf("not there: %v", want)
	}
}

// TestPolicyAdmits: the network policy admits each pod of the manifests that sends to the gateway.
func TestPolicyAdmits(t *testing.T) {
	policy := find[*networking.NetworkPolicy](t, read(t, "kubernetes/network-policy.yaml"), "NetworkPolicy/moonloop-gateway")
	for _, name := range []string{"agent.yaml", "replay-cronjob.yaml", "replay-indexed-job.yaml", "replay-job.yaml", "sidecar.yaml"} {
		for _, object := range read(t, "kubernetes/"+name) {
			var pod core.PodTemplateSpec
			switch o := object.(type) {
			case *apps.Deployment:
				pod = o.Spec.Template
			case *batch.Job:
				pod = o.Spec.Template
			case *batch.CronJob:
				pod = o.Spec.JobTemplate.Spec.Template
			default:
				continue
			}
			if !slices.ContainsFunc(policy.Spec.Ingress[0].From, func(peer networking.NetworkPolicyPeer) bool {
				selector, err := metav1.LabelSelectorAsSelector(peer.PodSelector)
				return err == nil && selector.Matches(labels.Set(pod.Labels))
			}) {
				t.Errorf("%s: network-policy.yaml does not admit %v", id(object), pod.Labels)
			}
		}
	}
}

// TestDecodingRefuses shows that decoding finds typing errors.
func TestDecodingRefuses(t *testing.T) {
	const service = "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec:\n  ports: [{name: x, port: 1}]\n"
	for _, c := range []struct{ fault, content, want string }{
		{"a misspelt field", strings.Replace(service, "ports:", "prots:", 1), `unknown field "spec.prots"`},
		{"a wrong type", strings.Replace(service, "port: 1", "port: one", 1), "cannot unmarshal"},
		{"a field twice", service + "  ports: []\n", `key "ports" already set`},
		{"an unknown kind", strings.Replace(service, "Service", "Srevice", 1), `no kind "Srevice"`},
		{"an object twice", service + "---\n" + service, "two objects are Service/a"},
	} {
		if _, err := decodeAll(knownTypes(t), []byte(c.content)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.fault, err)
		}
	}
	if objects, err := decodeAll(knownTypes(t), []byte(service)); err != nil || len(objects) != 1 {
		t.Errorf("%d objects, %v", len(objects), err)
	}
}
