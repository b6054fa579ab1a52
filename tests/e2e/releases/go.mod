// Releases of other projects, which tests take as they are; go.sum pins them. A program of one is
// built from the versions that the release's own go.mod and go.sum name. The definitions of KubeRay
// and Kueue judge the examples (tests/integration/deploy/test_custom_resources.py).
module releases

go 1.25.0

require (
	// For nodes that speak CDI (tests/support/node/parts.py).
	github.com/containerd/containerd/v2 v2.2.9
	// crane, which serves a registry on the node and pushes to it (tests/e2e/test_documented_commands.py).
	github.com/google/go-containerregistry v0.22.1
	github.com/ray-project/kuberay/ray-operator v1.5.0
	// Also built and installed by its own chart (tests/e2e/test_kueue.py).
	sigs.k8s.io/kueue v0.17.0
)
