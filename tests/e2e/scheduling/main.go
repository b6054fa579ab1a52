// Reads the configuration of schedulers as they themselves do: the program holds no logic of its own
// but calls kube-scheduler's strict decoder, defaults and validation, and decodes Volcano's jobs and
// queues into Volcano's types.
//
// Input is a JSON list of documents on stdin, each a text of YAML; output a list of what is wrong with
// each, empty where nothing is.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/validation"
	"sigs.k8s.io/yaml"
	batch "volcano.sh/apis/pkg/apis/batch/v1alpha1"
	queues "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
)

func main() {
	var documents []string
	if err := json.NewDecoder(os.Stdin).Decode(&documents); err != nil {
		fmt.Fprintln(os.Stderr, "scheduling:", err)
		os.Exit(1)
	}
	found := make([]string, 0, len(documents))
	for _, document := range documents {
		said := ""
		if err := check([]byte(document)); err != nil {
			said = err.Error()
		}
		found = append(found, said)
	}
	if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
		fmt.Fprintln(os.Stderr, "scheduling:", err)
		os.Exit(1)
	}
}

// check returns what the reader of a document's kind finds.
func check(document []byte) error {
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := yaml.Unmarshal(document, &head); err != nil {
		return err
	}
	switch head.APIVersion + " " + head.Kind {
	case "kubescheduler.config.k8s.io/v1 KubeSchedulerConfiguration":
		object, _, err := scheme.Codecs.UniversalDecoder().Decode(document, nil, nil)
		if err != nil {
			return err
		}
		read, fits := object.(*config.KubeSchedulerConfiguration)
		if !fits {
			return fmt.Errorf("it is read as %T", object)
		}
		if problems := validation.ValidateKubeSchedulerConfiguration(read); problems != nil {
			return problems
		}
		return nil
	case batch.SchemeGroupVersion.String() + " Job":
		return yaml.UnmarshalStrict(document, &batch.Job{})
	case queues.SchemeGroupVersion.String() + " Queue":
		return yaml.UnmarshalStrict(document, &queues.Queue{})
	}
	return fmt.Errorf("nobody here reads %s %s", head.APIVersion, head.Kind)
}
