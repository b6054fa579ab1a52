package main

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	cadvisor "github.com/google/cadvisor/info/v1"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager/bitmask"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

const (
	pollEvery       = 5 * time.Millisecond
	registerTimeout = 60 * time.Second
)

// Kubelet is the part of a kubelet that allocates devices: its device manager, its topology manager,
// which admits pods, and its podresources server, all on a directory of their own. The parts of it
// that the rest of a kubelet brings are made here: which pods are active and which containers run.
//
// Admissions are for one goroutine at a time, as in a kubelet; everything else may be called from any.
type Kubelet struct {
	directory string
	resources []string
	policy    string
	scope     string
	numaNodes int
	pods      *podTable
	order     func(pod *v1.Pod, container string) (first v1.ResourceName)

	manager  *devicemanager.ManagerImpl
	topology topologymanager.Manager
	server   *grpc.Server
	ready    atomic.Bool // the sources of pods have answered
}

// AddSource implements config.SourcesReady.
func (k *Kubelet) AddSource(string) {}

// AllReady implements config.SourcesReady.
func (k *Kubelet) AllReady() bool { return k.ready.Load() }

// start runs a kubelet that finds what an earlier one has left in the directory. Containers of running
// have an id as their container runtime would tell it.
func (k *Kubelet) start(running containermap.ContainerMap) error {
	nodes := make([]cadvisor.Node, k.numaNodes)
	for i := range nodes {
		nodes[i].Id = i
	}
	var err error
	if k.topology, err = topologymanager.NewManager(nodes, k.policy, k.scope, nil); err != nil {
		return err
	}
	socket := filepath.Join(k.directory, "device-plugins", "kubelet.sock")
	if k.manager, err = newManagerImpl(socket, nodes, k.topology); err != nil {
		return err
	}
	k.topology.AddHintProvider(&orderedProvider{k.manager, k})
	ids := sets.New[string]()
	for id := range running {
		ids.Insert(id)
	}
	k.ready.Store(false)
	if err = k.manager.Start(k.pods.GetActivePods, k, running, ids); err != nil {
		return err
	}
	k.server, err = servePodResources(k.directory, k.pods, k.manager)
	return err
}

// stop ends it as the death of the process would: every connection is gone.
func (k *Kubelet) stop() error {
	k.server.Stop()
	return k.manager.Stop()
}

// makeDirectory makes the pod's directory, as a kubelet does after it has admitted a pod. Whether it is
// there tells the agent whether a pod lives of which podresources shows nothing.
func (k *Kubelet) makeDirectory(uid types.UID) error {
	return os.MkdirAll(filepath.Join(k.directory, "pods", string(uid)), 0o750)
}

// removeDirectory removes it, as a kubelet does when the pod has ended.
func (k *Kubelet) removeDirectory(uid types.UID) {
	_ = os.RemoveAll(filepath.Join(k.directory, "pods", string(uid)))
}

// admit runs the kubelet's admission of a pod that is active already.
func (k *Kubelet) admit(pod *v1.Pod) lifecycle.PodAdmitResult {
	return k.topology.Admit(&lifecycle.PodAdmitAttributes{Pod: pod})
}

// waitRegistered waits until every resource has healthy units and returns how long that took.
func (k *Kubelet) waitRegistered() (time.Duration, error) {
	began := time.Now()
	for {
		missing := ""
		_, allocatable, _ := k.manager.GetCapacity()
		for _, resource := range k.resources {
			if count := allocatable[v1.ResourceName(resource)]; count.Value() == 0 {
				missing = resource
			}
		}
		if missing == "" {
			return time.Since(began), nil
		}
		if time.Since(began) > registerTimeout {
			return 0, fmt.Errorf("%s is not registered after %s", missing, registerTimeout)
		}
		time.Sleep(pollEvery)
	}
}

// waitLost waits until the kubelet has noticed that the agent is gone.
func (k *Kubelet) waitLost() error {
	deadline := time.Now().Add(registerTimeout)
	for time.Now().Before(deadline) {
		_, allocatable, _ := k.manager.GetCapacity()
		healthy := int64(0)
		for _, resource := range k.resources {
			count := allocatable[v1.ResourceName(resource)]
			healthy += count.Value()
		}
		if healthy == 0 {
			return nil
		}
		time.Sleep(pollEvery)
	}
	return fmt.Errorf("the kubelet does not notice that the agent was killed")
}

// unitsOf returns the units that the kubelet has on record for a container, by half.
func (k *Kubelet) unitsOf(pod *v1.Pod, container, family string) map[Half][]string {
	found := map[Half][]string{}
	for resource, instances := range k.manager.GetDevices(string(pod.UID), container) {
		for _, half := range halves {
			if resource == resourceName(family, half) {
				for id := range instances {
					found[half] = append(found[half], id)
				}
			}
		}
	}
	return found
}

// affinity returns where the topology manager wants a container, nil if it has no wish.
func (k *Kubelet) affinity(pod *v1.Pod, s *slot, gpus map[string]*GPU) bitmask.BitMask {
	for _, gpu := range gpus {
		if gpu.NUMA < 0 {
			return nil // the manager then ignores the wish
		}
	}
	return k.topology.GetAffinity(string(pod.UID), s.spec.Name).NUMANodeAffinity
}

// countAllocated returns how many units of each resource the kubelet believes allocated, which it
// tells only while it knows some pod with devices.
func (k *Kubelet) countAllocated(pod *v1.Pod) map[string]int {
	node := framework.NewNodeInfo()
	counts := map[string]int{}
	err := k.manager.UpdatePluginResources(node, &lifecycle.PodAdmitAttributes{Pod: pod})
	if err != nil {
		return counts
	}
	for name, count := range node.Allocatable.ScalarResources {
		counts[string(name)] = int(count)
	}
	return counts
}

// orderedProvider lets a history say which resource of a container is asked for first. The kubelet
// leaves that to Go's map order; here the manager first sees the container with one resource alone.
type orderedProvider struct {
	*devicemanager.ManagerImpl
	kubelet *Kubelet
}

// Allocate implements topologymanager.HintProvider.
func (p *orderedProvider) Allocate(pod *v1.Pod, container *v1.Container) error {
	if first := p.kubelet.order(pod, container.Name); first != "" {
		partial := container.DeepCopy()
		for name := range partial.Resources.Limits {
			if name != first {
				delete(partial.Resources.Limits, name)
			}
		}
		if err := p.ManagerImpl.Allocate(pod, partial); err != nil {
			return err
		}
	}
	return p.ManagerImpl.Allocate(pod, container)
}
