package main

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta/testrestmapper"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/cel/environment"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	core "k8s.io/kubernetes/pkg/apis/core"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/capabilities"
	"sigs.k8s.io/yaml"
)

var (
	podKind     = corev1.SchemeGroupVersion.WithKind("Pod")
	podResource = corev1.SchemeGroupVersion.WithResource("pods")
)

// server is an API server as far as the admission of pods goes.
type server struct {
	plugin   *validating.Plugin
	policies *policies
}

// newServer starts the plugin with the policies and namespaces in force, until stop is closed.
func newServer(loaded *policies, objects []runtime.Object, stop <-chan struct{}) (*server, error) {
	for _, policy := range loaded.policies {
		objects = append(objects, policy)
	}
	for _, binding := range loaded.bindings {
		objects = append(objects, binding)
	}
	// Privileged pods are the policies' business here, as on any cluster that runs this agent.
	capabilities.Initialize(capabilities.Capabilities{AllowPrivileged: true})
	client := fake.NewClientset(objects...)
	factory := informers.NewSharedInformerFactory(client, 0)
	plugin := validating.NewPlugin(nil)
	plugin.SetExternalKubeClientSet(client)
	plugin.SetExternalKubeInformerFactory(factory)
	plugin.SetRESTMapper(testrestmapper.TestOnlyStaticRESTMapper(legacyscheme.Scheme))
	plugin.SetDynamicClient(dynamicfake.NewSimpleDynamicClient(legacyscheme.Scheme))
	plugin.SetAuthorizer(authorizerfactory.NewAlwaysAllowAuthorizer())
	plugin.SetDrainedNotification(stop)
	if err := plugin.ValidateInitialization(); err != nil {
		return nil, err
	}
	factory.Start(stop)
	factory.WaitForCacheSync(stop)
	if !plugin.WaitForReady() {
		return nil, errors.New("the plugin does not become ready")
	}
	return &server{plugin, loaded}, nil
}

func namesOf(pods []pod) map[string]bool {
	names := map[string]bool{}
	for _, p := range pods {
		names[p.Namespace] = true
	}
	return names
}

// namespace returns a namespace with the label that every API server adds.
func namespace(name string) *corev1.Namespace {
	labels := map[string]string{corev1.LabelMetadataName: name}
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

// judge asks about one pod.
func (s *server) judge(p pod) (podVerdict, error) {
	found := podVerdict{Name: p.Name}
	external := &corev1.Pod{}
	if err := yaml.UnmarshalStrict(p.Manifest, external); err != nil {
		return found, err
	}
	external.Namespace = p.Namespace
	legacyscheme.Scheme.Default(external)
	internal := &core.Pod{}
	if err := legacyscheme.Scheme.Convert(external, internal, nil); err != nil {
		return found, err
	}
	attributes, invalid := attributesOf(internal)
	found.Invalid = invalid

	interfaces := admission.NewObjectInterfacesFromScheme(legacyscheme.Scheme)
	err := s.plugin.Validate(context.Background(), attributes, interfaces)
	var refusal apierrors.APIStatus
	switch {
	case errors.As(err, &refusal):
		found.Refused = refusal.Status().Message
	case err != nil:
		return found, err
	}
	for _, policy := range s.policies.policies {
		cost, err := costOf(policy, attributes, interfaces)
		if err != nil {
			return found, err
		}
		found.Cost = max(found.Cost, cost)
	}
	return found, nil
}

// attributesOf returns the call that brings a pod, and why no API server would take it.
func attributesOf(made *core.Pod) (admission.Attributes, string) {
	operation, subresource := admission.Create, ""
	var old runtime.Object
	var options runtime.Object = &metav1.CreateOptions{}
	limits := corevalidation.PodValidationOptions{AllowRelaxedEnvironmentVariableValidation: true}
	problems := corevalidation.ValidatePodCreate
	if len(made.Spec.EphemeralContainers) > 0 {
		before := made.DeepCopy()
		before.Spec.EphemeralContainers = nil
		before.ResourceVersion, made.ResourceVersion = "1", "1"
		old, operation, subresource = before, admission.Update, "ephemeralcontainers"
		options = &metav1.UpdateOptions{}
		problems = func(pod *core.Pod, o corevalidation.PodValidationOptions) field.ErrorList {
			return corevalidation.ValidatePodEphemeralContainersUpdate(pod, before, o)
		}
	}
	invalid := ""
	if found := problems(made, limits); len(found) > 0 {
		invalid = found.ToAggregate().Error()
	}
	return admission.NewAttributesRecord(made, old, podKind, made.Namespace, made.Name, podResource,
		subresource, operation, options, false, &user.DefaultInfo{Name: "somebody"}), invalid
}

// costOf returns what the expressions of a policy spend on a call if all are evaluated: an API
// server has one budget for the conditions and one for everything else of a policy.
func costOf(
	policy *v1.ValidatingAdmissionPolicy, a admission.Attributes, interfaces admission.ObjectInterfaces,
) (int64, error) {
	compiler, err := plugincel.NewCompositedCompiler(
		environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion(), true))
	if err != nil {
		return 0, err
	}
	var variables []plugincel.NamedExpressionAccessor
	for _, variable := range policy.Spec.Variables {
		variables = append(variables,
			&validating.Variable{Name: variable.Name, Expression: variable.Expression})
	}
	compiler.CompileAndStoreVariables(variables, declared, environment.StoredExpressions)
	var all []plugincel.ExpressionAccessor
	for _, rule := range policy.Spec.Validations {
		all = append(all, &validating.ValidationCondition{Expression: rule.Expression})
	}
	versioned, err := admission.NewVersionedAttributes(a, podKind, interfaces)
	if err != nil {
		return 0, err
	}
	asked := plugincel.CreateAdmissionRequest(a, metav1.GroupVersionResource(podResource),
		metav1.GroupVersionKind(podKind))
	// The composed evaluator wants the context of its own variables.
	evaluator := compiler.CompileCondition(all, declared, environment.StoredExpressions)
	results, left, err := evaluator.ForInput(context.Background(), versioned, asked,
		plugincel.OptionalVariableBindings{Authorizer: authorizerfactory.NewAlwaysAllowAuthorizer()},
		nil, celconfig.RuntimeCELCostBudget)
	if err != nil {
		return 0, err
	}
	for _, result := range results {
		if result.Error != nil {
			return 0, fmt.Errorf("%s: %w", policy.Name, result.Error)
		}
	}
	return celconfig.RuntimeCELCostBudget - left, nil
}
