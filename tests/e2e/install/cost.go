package main

import (
	"context"
	"fmt"

	v1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/cel/environment"
)

// compiled are the validations of a policy, to be measured: the plugin does not tell what they cost.
type compiled struct {
	name      string
	evaluator plugincel.ConditionEvaluator
}

func compile(policy *v1.ValidatingAdmissionPolicy) (compiled, error) {
	compiler, err := plugincel.NewCompositedCompiler(
		environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion(), true))
	if err != nil {
		return compiled{}, err
	}
	for _, variable := range policy.Spec.Variables {
		compiler.CompileAndStoreVariable(
			&validating.Variable{Name: variable.Name, Expression: variable.Expression},
			declared, environment.StoredExpressions)
	}
	var all []plugincel.ExpressionAccessor
	for _, rule := range policy.Spec.Validations {
		all = append(all, &validating.ValidationCondition{Expression: rule.Expression})
	}
	evaluator := compiler.CompileCondition(all, declared, environment.StoredExpressions)
	return compiled{policy.Name, evaluator}, nil
}

// cost returns what the validations spend on a call if all are evaluated, in the units of the API
// server's budget for one policy; also where its condition would spare it that.
func (c compiled) cost(a admission.Attributes, interfaces admission.ObjectInterfaces) (int64, error) {
	versioned, err := admission.NewVersionedAttributes(a, podKind, interfaces)
	if err != nil {
		return 0, err
	}
	asked := plugincel.CreateAdmissionRequest(a, metav1.GroupVersionResource(podResource),
		metav1.GroupVersionKind(podKind))
	bindings := plugincel.OptionalVariableBindings{
		Authorizer: authorizerfactory.NewAlwaysAllowAuthorizer(),
	}
	results, left, err := c.evaluator.ForInput(context.Background(), versioned, asked, bindings, nil,
		celconfig.RuntimeCELCostBudget)
	if err != nil {
		return 0, err
	}
	for _, result := range results {
		if result.Error != nil {
			return 0, fmt.Errorf("%s: %w", c.name, result.Error)
		}
	}
	return celconfig.RuntimeCELCostBudget - left, nil
}
