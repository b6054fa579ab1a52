package main

import (
	"fmt"
	"path/filepath"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	plugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/kubernetes/pkg/kubelet/checkpointmanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/checkpoint"
)

const (
	checkpointName = "kubelet_internal_checkpoint"
	limitsPath     = "/run/vgpu/limits" // in the container
)

// answers are what the agent told the kubelet for the containers of one pod, by container and
// resource, as the kubelet will replay it whenever the container starts.
type answers map[string]map[string]*plugin.ContainerAllocateResponse

// answersFor reads the kubelet's own checkpoint.
func (k *Kubelet) answersFor(pod *v1.Pod) (answers, error) {
	directory := filepath.Join(k.directory, "device-plugins")
	manager, err := checkpointmanager.NewCheckpointManager(directory)
	if err != nil {
		return nil, err
	}
	stored := checkpoint.New(nil, nil)
	if err := manager.GetCheckpoint(checkpointName, stored); err != nil {
		return nil, err
	}
	found := answers{}
	entries, _ := stored.GetData()
	for _, entry := range entries {
		if entry.PodUID != string(pod.UID) {
			continue
		}
		answer := &plugin.ContainerAllocateResponse{}
		if err := proto.Unmarshal(entry.AllocResp, answer); err != nil {
			return nil, err
		}
		if found[entry.ContainerName] == nil {
			found[entry.ContainerName] = map[string]*plugin.ContainerAllocateResponse{}
		}
		found[entry.ContainerName][entry.ResourceName] = answer
	}
	return found, nil
}

// merged returns the host path behind each path in the container, and what contradicts itself: the
// kubelet takes the first of two values in map order and only logs the other.
func merged(byResource map[string]*plugin.ContainerAllocateResponse) (map[string]string, []string) {
	hosts, values := map[string]string{}, map[string]string{}
	var conflicts []string
	note := func(known map[string]string, key, value string) {
		if before, twice := known[key]; twice && before != value {
			conflicts = append(conflicts, fmt.Sprintf("%s is %q and %q", key, before, value))
		}
		known[key] = value
	}
	for _, resource := range sortedKeys(byResource) {
		answer := byResource[resource]
		for key, value := range answer.Envs {
			note(values, "variable "+key, value)
		}
		for key, value := range answer.Annotations {
			note(values, "annotation "+key, value)
		}
		for _, mount := range answer.Mounts {
			note(hosts, mount.ContainerPath, mount.HostPath)
			note(values, "read-only of "+mount.ContainerPath, fmt.Sprint(mount.ReadOnly))
		}
		for _, device := range answer.Devices {
			note(values, "device "+device.ContainerPath, device.HostPath+" "+device.Permissions)
		}
	}
	return hosts, conflicts
}
