package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"k8s.io/api/admissionregistration/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/openapi"
	"k8s.io/client-go/openapi/openapitest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/admissionregistration"
	"k8s.io/kubernetes/pkg/apis/admissionregistration/validation"
	core "k8s.io/kubernetes/pkg/apis/core"
	"sigs.k8s.io/yaml"
)

// The plugin of this version knows policies as v1beta1 only; v1 has the same fields.
type mutatingPolicies struct {
	policies []*v1beta1.MutatingAdmissionPolicy
	bindings []*v1beta1.MutatingAdmissionPolicyBinding
}

// add reads a policy or a binding; a field that is not known is an error.
func (m *mutatingPolicies) add(kind string, document []byte) error {
	switch kind {
	case "MutatingAdmissionPolicy":
		policy := &v1beta1.MutatingAdmissionPolicy{}
		if err := yaml.UnmarshalStrict(document, policy); err != nil {
			return err
		}
		policy.APIVersion = v1beta1.SchemeGroupVersion.String()
		legacyscheme.Scheme.Default(policy)
		m.policies = append(m.policies, policy)
	case "MutatingAdmissionPolicyBinding":
		binding := &v1beta1.MutatingAdmissionPolicyBinding{}
		if err := yaml.UnmarshalStrict(document, binding); err != nil {
			return err
		}
		binding.APIVersion = v1beta1.SchemeGroupVersion.String()
		legacyscheme.Scheme.Default(binding)
		m.bindings = append(m.bindings, binding)
	}
	return nil
}

// problems returns what the API server's validation finds; it compiles the expressions.
func (m *mutatingPolicies) problems() []string {
	var found []string
	for _, policy := range m.policies {
		internal := &admissionregistration.MutatingAdmissionPolicy{}
		if err := legacyscheme.Scheme.Convert(policy, internal, nil); err != nil {
			found = append(found, err.Error())
			continue
		}
		for _, problem := range validation.ValidateMutatingAdmissionPolicy(internal) {
			found = append(found, fmt.Sprintf("%s: %v", policy.Name, problem))
		}
	}
	for _, binding := range m.bindings {
		internal := &admissionregistration.MutatingAdmissionPolicyBinding{}
		if err := legacyscheme.Scheme.Convert(binding, internal, nil); err != nil {
			found = append(found, err.Error())
			continue
		}
		for _, problem := range validation.ValidateMutatingAdmissionPolicyBinding(internal) {
			found = append(found, fmt.Sprintf("%s: %v", binding.Name, problem))
		}
	}
	return found
}

func (m *mutatingPolicies) objects() []runtime.Object {
	var found []runtime.Object
	for _, policy := range m.policies {
		found = append(found, policy)
	}
	for _, binding := range m.bindings {
		found = append(found, binding)
	}
	return found
}

// withTypes is a client whose server publishes the types of core/v1, which patches are held against.
type withTypes struct{ kubernetes.Interface }

func (c withTypes) Discovery() discovery.DiscoveryInterface {
	return typesOnly{c.Interface.Discovery()}
}

type typesOnly struct{ discovery.DiscoveryInterface }

func (typesOnly) OpenAPIV3() openapi.Client { return openapitest.NewEmbeddedFileClient() }

// admit lets the policies change a pod, and a second time where the first has changed it, as the API
// server does. The plugin reads the types by itself after its start and refuses until then.
func admit(plugin *mutating.Plugin, a admission.Attributes, o admission.ObjectInterfaces) error {
	deadline := time.Now().Add(30 * time.Second)
	for {
		err := plugin.Admit(context.Background(), a, o)
		var refusal apierrors.APIStatus
		if errors.As(err, &refusal) && apierrors.IsServiceUnavailable(err) && time.Now().Before(deadline) {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		if err != nil {
			return err
		}
		break
	}
	if again := a.GetReinvocationContext(); again.ShouldReinvoke() {
		again.SetIsReinvoke()
		return plugin.Admit(context.Background(), a, o)
	}
	return nil
}

// manifestOf returns a pod as a client sees it.
func manifestOf(internal *core.Pod) (json.RawMessage, error) {
	external := &corev1.Pod{}
	if err := legacyscheme.Scheme.Convert(internal, external, nil); err != nil {
		return nil, err
	}
	return json.Marshal(external)
}
