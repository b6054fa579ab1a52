// Whose CustomResourceDefinitions the examples are held against
// (tests/integration/deploy/test_custom_resources.py): nothing here is compiled, and the module's files
// are taken as they are. go.sum pins them.
module crds

go 1.24.0

require (
	github.com/ray-project/kuberay/ray-operator v1.5.0
	sigs.k8s.io/kueue v0.17.0
)
