package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	v1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta/testrestmapper"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/admissionregistration"
	"k8s.io/kubernetes/pkg/apis/admissionregistration/validation"
	"sigs.k8s.io/yaml"
)

// The first minor with ValidatingAdmissionPolicy v1: expressions must compile with what it knows.
var oldest = version.MajorMinor(1, 30)

// policies are those of a manifest file, with defaults.
type policies struct {
	policies []*v1.ValidatingAdmissionPolicy
	bindings []*v1.ValidatingAdmissionPolicyBinding
	mutating mutatingPolicies
}

// load reads the policies of a manifest; a field that is not known is an error.
func load(manifests string) (*policies, error) {
	loaded := &policies{}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(manifests)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		var kind struct{ Kind string }
		if err := yaml.Unmarshal(document, &kind); err != nil {
			return nil, err
		}
		switch kind.Kind {
		case "ValidatingAdmissionPolicy":
			policy := &v1.ValidatingAdmissionPolicy{}
			if err := yaml.UnmarshalStrict(document, policy); err != nil {
				return nil, err
			}
			legacyscheme.Scheme.Default(policy)
			loaded.policies = append(loaded.policies, policy)
		case "ValidatingAdmissionPolicyBinding":
			binding := &v1.ValidatingAdmissionPolicyBinding{}
			if err := yaml.UnmarshalStrict(document, binding); err != nil {
				return nil, err
			}
			legacyscheme.Scheme.Default(binding)
			loaded.bindings = append(loaded.bindings, binding)
		default:
			if err := loaded.mutating.add(kind.Kind, document); err != nil {
				return nil, err
			}
		}
	}
	return loaded, nil
}

// problems returns what the API server's validation finds, and what its oldest version cannot compile.
func (p *policies) problems() []string {
	found := p.mutating.problems()
	for _, policy := range p.policies {
		internal := &admissionregistration.ValidatingAdmissionPolicy{}
		if err := legacyscheme.Scheme.Convert(policy, internal, nil); err != nil {
			found = append(found, err.Error())
			continue
		}
		for _, problem := range validation.ValidateValidatingAdmissionPolicy(internal) {
			found = append(found, fmt.Sprintf("%s: %v", policy.Name, problem))
		}
		compiler, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(oldest, true))
		if err != nil {
			return append(found, err.Error())
		}
		for _, variable := range policy.Spec.Variables {
			result := compiler.CompileAndStoreVariable(
				&validating.Variable{Name: variable.Name, Expression: variable.Expression},
				declared, environment.NewExpressions)
			found = appendError(found, policy.Name, result)
		}
		for _, expression := range expressions(policy) {
			result := compiler.CompileCELExpression(
				&validating.ValidationCondition{Expression: expression}, declared,
				environment.NewExpressions)
			// Sentences are strings, and only this is held against them here.
			if result.Error != nil && !strings.Contains(result.Error.Detail, "must evaluate to bool") {
				found = appendError(found, policy.Name, result)
			}
		}
	}
	for _, binding := range p.bindings {
		internal := &admissionregistration.ValidatingAdmissionPolicyBinding{}
		if err := legacyscheme.Scheme.Convert(binding, internal, nil); err != nil {
			found = append(found, err.Error())
			continue
		}
		for _, problem := range validation.ValidateValidatingAdmissionPolicyBinding(internal) {
			found = append(found, fmt.Sprintf("%s: %v", binding.Name, problem))
		}
	}
	return found
}

// declared are the variables that the API server offers to expressions without parameters.
var declared = plugincel.OptionalVariableDeclarations{HasAuthorizer: true, StrictCost: true}

func appendError(found []string, name string, result plugincel.CompilationResult) []string {
	if result.Error == nil {
		return found
	}
	return append(found, fmt.Sprintf("%s with Kubernetes %v: %s", name, oldest, result.Error.Detail))
}

// expressions returns all but the variables.
func expressions(policy *v1.ValidatingAdmissionPolicy) []string {
	var found []string
	for _, condition := range policy.Spec.MatchConditions {
		found = append(found, condition.Expression)
	}
	for _, rule := range policy.Spec.Validations {
		found = append(found, rule.Expression)
		if rule.MessageExpression != "" {
			found = append(found, rule.MessageExpression)
		}
	}
	return found
}

// typeProblems returns what the API server's type check finds, given the types of an openapi file.
// It would look at the validations alone; a variable of a wrong type would show where it is used, if
// at all. So variables and conditions are checked as well.
func (p *policies) typeProblems(openapi string) ([]string, error) {
	types, err := readTypes(openapi)
	if err != nil {
		return nil, err
	}
	checker := &validating.TypeChecker{
		SchemaResolver: types,
		RestMapper:     testrestmapper.TestOnlyStaticRESTMapper(legacyscheme.Scheme),
	}
	var found []string
	for _, policy := range p.policies {
		all := expressions(policy)
		for _, variable := range policy.Spec.Variables {
			all = append(all, variable.Expression)
		}
		context := checker.CreateContext(policy)
		for _, expression := range all {
			if said := checker.CheckExpression(context, expression).String(); said != "" {
				found = append(found, fmt.Sprintf("%s: %s", policy.Name, said))
			}
		}
	}
	return found, nil
}

// types resolves kinds by the definitions of a swagger.json.
type types struct{ definitions map[string]*spec.Schema }

const definitionPrefix = "#/definitions/"

// read are the files that were asked for, since reading one takes longer than all that is asked of it.
var read = map[string]*types{}

func readTypes(path string) (*types, error) {
	if read[path] != nil {
		return read[path], nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var file struct {
		Definitions map[string]*spec.Schema `json:"definitions"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	read[path] = &types{file.Definitions}
	return read[path], nil
}

// ResolveSchema returns the type of a kind, with all types inside it in place.
func (t *types) ResolveSchema(kind schema.GroupVersionKind) (*spec.Schema, error) {
	for name, definition := range t.definitions {
		var kinds []schema.GroupVersionKind
		if definition.Extensions.GetObject("x-kubernetes-group-version-kind", &kinds) != nil {
			continue
		}
		if len(kinds) == 1 && kinds[0] == kind {
			return resolver.PopulateRefs(func(ref string) (*spec.Schema, bool) {
				found, ok := t.definitions[strings.TrimPrefix(ref, definitionPrefix)]
				return found, ok
			}, definitionPrefix+name)
		}
	}
	return nil, fmt.Errorf("%v: %w", kind, resolver.ErrSchemaNotFound)
}
