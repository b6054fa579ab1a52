// What judges the chart and the agent with Kubernetes' own code, all of one version, so that each
// library is compiled once. `install` judges the install, next to helm and kubeconform as they are
// (test_install.py). `devicemanager` is the kubelet's own, driven against the node agent
// (test_devicemanager.py). `scheduling` reads examples of schedulers' configuration as the schedulers
// do (test_scheduler_examples.py). `pause` holds the namespaces of a pod on a node of real parts.
// The parts of Kubernetes are the control plane and the kubelet of most tests, and of those in
// cluster/ where no other version is named.
module e2e

go 1.24.0

require (
	github.com/yannh/kubeconform v0.7.0
	helm.sh/helm/v3 v3.19.5
	k8s.io/kubernetes v1.34.4
	volcano.sh/apis v1.13.0
)

// Where the releases disagree, and none of them pins the version that all can have.
require (
	github.com/containerd/ttrpc v1.2.7 // indirect
	github.com/fatih/color v1.16.0 // indirect
	github.com/mattn/go-isatty v0.0.20 // indirect
	go.opentelemetry.io/otel/metric v1.36.0 // indirect
)
