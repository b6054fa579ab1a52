// Renders the chart as helm does, and judges admission policies as an API server would: the program
// holds no logic of its own but calls helm, and the API server's defaulting, validation, type check
// and admission plugin on the policies of a manifest file, and on pods.
//
// Input is a JSON object a line on stdin (`request`), output one on stdout for each (`verdict`): most
// of what a program of this size costs is its start.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	// What these install: the types, conversions and defaults of the two API groups.
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
)

// request says what to render, or what to judge.
type request struct {
	// Template are the arguments of a `helm template`; nothing is judged where there are some.
	Template []string `json:"template"`
	// Manifests is the text of a file with policies and bindings; other objects are left out.
	Manifests string `json:"manifests"`
	// OpenAPI is the path of an API server's swagger.json, whose types the expressions must fit; the
	// policies are only checked where it is given.
	OpenAPI string `json:"openapi"`
	Pods    []pod  `json:"pods"`
}

// pod is one pod that somebody asks the API server to make.
type pod struct {
	Name      string          `json:"name"`
	Namespace string          `json:"namespace"`
	Manifest  json.RawMessage `json:"manifest"`
}

// verdict is what an API server would say, or helm.
type verdict struct {
	// Rendered is what helm prints.
	Rendered string `json:"rendered"`
	// Failed is why there is no answer, or helm's error.
	Failed string `json:"failed"`
	// Problems are what validation and type check find in the policies.
	Problems []string     `json:"problems"`
	Pods     []podVerdict `json:"pods"`
}

// podVerdict is about one pod of the request. One with ephemeral containers is asked about as an
// update of a pod without them, since they cannot come in another way.
type podVerdict struct {
	Name string `json:"name"`
	// Invalid is why no API server would take such a pod, whatever the policies say.
	Invalid string `json:"invalid"`
	// Refused is the sentence of the refusal, empty if the pod is let in.
	Refused string `json:"refused"`
	// Warnings are what a client is told that is let in.
	Warnings []string `json:"warnings"`
	// Admitted is the pod as the policies leave it.
	Admitted json.RawMessage `json:"admitted"`
	// Cost is what the policies spend on it at most, in the units of the API server's budget.
	Cost int64 `json:"cost"`
}

func main() {
	decoder, encoder := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	decoder.DisallowUnknownFields()
	for {
		var asked request
		err := decoder.Decode(&asked)
		if errors.Is(err, io.EOF) {
			return
		}
		if err == nil {
			err = encoder.Encode(answer(asked))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "install:", err)
			os.Exit(1)
		}
	}
}

func answer(asked request) *verdict {
	found, err := &verdict{}, error(nil)
	if asked.Template != nil {
		found.Rendered, err = render(asked.Template)
	} else {
		found, err = judge(asked)
	}
	if err != nil {
		return &verdict{Failed: err.Error()}
	}
	return found
}

func judge(asked request) (*verdict, error) {
	loaded, err := load(asked.Manifests)
	if err != nil {
		return nil, err
	}
	found := &verdict{}
	if asked.OpenAPI != "" {
		typed, err := loaded.typeProblems(asked.OpenAPI)
		if err != nil {
			return nil, err
		}
		found.Problems = append(loaded.problems(), typed...)
	}

	var namespaces []runtime.Object
	for name := range namesOf(asked.Pods) {
		namespaces = append(namespaces, namespace(name))
	}
	stop := make(chan struct{})
	defer close(stop)
	server, err := newServer(loaded, namespaces, stop)
	if err != nil {
		return nil, err
	}
	for _, p := range asked.Pods {
		one, err := server.judge(p)
		if err != nil {
			return nil, fmt.Errorf("pod %q: %w", p.Name, err)
		}
		found.Pods = append(found.Pods, one)
	}
	return found, nil
}
