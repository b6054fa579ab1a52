package main

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta/testrestmapper"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/warning"
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
	mutating *mutating.Plugin
	plugin   *validating.Plugin
	policies []compiled
}

// policyPlugin is what both plugins need before they can be asked.
type policyPlugin interface {
	initializer.WantsExternalKubeClientSet
	initializer.WantsExternalKubeInformerFactory
	initializer.WantsRESTMapper
	initializer.WantsDynamicClient
	initializer.WantsAuthorizer
	initializer.WantsDrainedNotification
	WaitForReady() bool
}

// newServer starts the plugins with the policies and namespaces in force, until stop is closed.
func newServer(loaded *policies, objects []runtime.Object, stop <-chan struct{}) (*server, error) {
	for _, policy := range loaded.policies {
		objects = append(objects, policy)
	}
	for _, binding := range loaded.bindings {
		objects = append(objects, binding)
	}
	objects = append(objects, loaded.mutating.objects()...)
	// Privileged pods are the policies' business here, as on any cluster that runs this agent.
	capabilities.Initialize(capabilities.Capabilities{AllowPrivileged: true})
	client := withTypes{fake.NewClientset(objects...)}
	factory := informers.NewSharedInformerFactory(client, 0)
	found := &server{mutating: mutating.NewPlugin(nil), plugin: validating.NewPlugin(nil)}
	found.mutating.SetEnabled(true) // a feature gate of this version
	for _, plugin := range []policyPlugin{found.mutating, found.plugin} {
		plugin.SetExternalKubeClientSet(client)
		plugin.SetExternalKubeInformerFactory(factory)
		plugin.SetRESTMapper(testrestmapper.TestOnlyStaticRESTMapper(legacyscheme.Scheme))
		plugin.SetDynamicClient(dynamicfake.NewSimpleDynamicClient(legacyscheme.Scheme))
		plugin.SetAuthorizer(authorizerfactory.NewAlwaysAllowAuthorizer())
		plugin.SetDrainedNotification(stop)
		if err := plugin.ValidateInitialization(); err != nil {
			return nil, err
		}
	}
	factory.Start(stop)
	factory.WaitForCacheSync(stop)
	for _, plugin := range []policyPlugin{found.mutating, found.plugin} {
		if !plugin.WaitForReady() {
			return nil, errors.New("a plugin does not become ready")
		}
	}
	for _, policy := range loaded.policies {
		one, err := compile(policy)
		if err != nil {
			return nil, err
		}
		found.policies = append(found.policies, one)
	}
	return found, nil
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
	attributes, problems := attributesOf(internal)
	interfaces := admission.NewObjectInterfacesFromScheme(legacyscheme.Scheme)
	if err := admit(s.mutating, attributes, interfaces); err != nil {
		return found, err
	}
	if invalid := problems(); len(invalid) > 0 {
		found.Invalid = invalid.ToAggregate().Error()
	}
	var err error
	if found.Admitted, err = manifestOf(internal); err != nil {
		return found, err
	}
	told := warning.WithWarningRecorder(context.Background(), &found)
	err = s.plugin.Validate(told, attributes, interfaces)
	var refusal apierrors.APIStatus
	switch {
	case errors.As(err, &refusal):
		found.Refused = refusal.Status().Message
	case err != nil:
		return found, err
	}
	for _, policy := range s.policies {
		cost, err := policy.cost(attributes, interfaces)
		if err != nil {
			return found, err
		}
		found.Cost = max(found.Cost, cost)
	}
	return found, nil
}

// AddWarning notes what the API server tells the client (warning.Recorder).
func (v *podVerdict) AddWarning(_, text string) { v.Warnings = append(v.Warnings, text) }

// attributesOf returns the call that brings a pod, and what tells why no API server would take it.
func attributesOf(made *core.Pod) (admission.Attributes, func() field.ErrorList) {
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
	invalid := func() field.ErrorList { return problems(made, limits) }
	return admission.NewAttributesRecord(made, old, podKind, made.Namespace, made.Name, podResource,
		subresource, operation, options, false, &user.DefaultInfo{Name: "somebody"}), invalid
}
