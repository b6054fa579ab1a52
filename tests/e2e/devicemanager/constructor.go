package main

import (
	_ "unsafe" // go:linkname needs it

	cadvisor "github.com/google/cadvisor/info/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
)

// The exported constructor always uses /var/lib/kubelet/device-plugins, which needs root and would
// meet a kubelet of the host. This is the one behind it. The assembler file beside this one is empty;
// it lets the compiler accept a function without a body.
//
//go:linkname newManagerImpl k8s.io/kubernetes/pkg/kubelet/cm/devicemanager.newManagerImpl
func newManagerImpl(
	socketPath string, topology []cadvisor.Node, affinities topologymanager.Store,
) (*devicemanager.ManagerImpl, error)
