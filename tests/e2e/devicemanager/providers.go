package main

import (
	"context"
	"net"
	"os"
	"path/filepath"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	apisgrpc "k8s.io/kubernetes/pkg/kubelet/apis/grpc"
	"k8s.io/kubernetes/pkg/kubelet/apis/podresources"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
)

// devices shows a device manager to podresources as the kubelet's container manager does: an entry for
// every single device.
type devices struct{ *devicemanager.ManagerImpl }

func (d devices) GetDevices(podUID, containerName string) []*podresourcesv1.ContainerDevices {
	return entries(d.ManagerImpl.GetDevices(podUID, containerName))
}

func (d devices) GetAllocatableDevices() []*podresourcesv1.ContainerDevices {
	return entries(d.ManagerImpl.GetAllocatableDevices())
}

func entries(found devicemanager.ResourceDeviceInstances) []*podresourcesv1.ContainerDevices {
	var listed []*podresourcesv1.ContainerDevices
	for resource, instances := range found {
		for id, device := range instances {
			entry := func(topology *podresourcesv1.TopologyInfo) {
				listed = append(listed, &podresourcesv1.ContainerDevices{
					ResourceName: resource, DeviceIds: []string{id}, Topology: topology,
				})
			}
			if device.GetTopology() == nil {
				entry(nil)
			}
			for _, node := range device.GetTopology().GetNodes() {
				entry(&podresourcesv1.TopologyInfo{
					Nodes: []*podresourcesv1.NUMANode{{ID: node.GetID()}},
				})
			}
		}
	}
	return listed
}

// nothing stands for the kubelet's other managers, which have nothing to tell of these pods.
type nothing struct{}

func (nothing) GetCPUs(string, string) []int64                          { return nil }
func (nothing) GetAllocatableCPUs() []int64                             { return nil }
func (nothing) GetAllocatableMemory() []*podresourcesv1.ContainerMemory { return nil }
func (nothing) GetMemory(string, string) []*podresourcesv1.ContainerMemory {
	return nil
}
func (nothing) GetDynamicResources(*v1.Pod, *v1.Container) []*podresourcesv1.DynamicResource {
	return nil
}

// servePodResources serves podresources with the kubelet's own server and its own rate limit.
func servePodResources(
	directory string, pods podresources.PodsProvider, manager *devicemanager.ManagerImpl,
) (*grpc.Server, error) {
	socket := filepath.Join(directory, "pod-resources", "kubelet.sock")
	if err := os.MkdirAll(filepath.Dir(socket), 0o750); err != nil {
		return nil, err
	}
	if err := os.Remove(socket); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	server := grpc.NewServer(apisgrpc.WithRateLimiter(
		ctx, "podresources", podresources.DefaultQPS, podresources.DefaultBurstTokens))
	podresourcesv1.RegisterPodResourcesListerServer(server, podresources.NewV1PodResourcesServer(ctx,
		podresources.PodResourcesProviders{
			Pods: pods, Devices: devices{manager},
			Cpus: nothing{}, Memory: nothing{}, DynamicResources: nothing{},
		}))
	go func() { _ = server.Serve(listener) }() // ends with the server
	return server, nil
}
