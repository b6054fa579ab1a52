// The oldest minor on which the chart is tried: the control plane and the node. go.sum pins the release
// and its libraries, which a release has in its own tree only. All else the release pins itself.
module oldest

go 1.22.0

require k8s.io/kubernetes v1.31.4
