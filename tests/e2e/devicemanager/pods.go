package main

import (
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const namespace = "judge"

// podTable is what the kubelet's pod manager and pod workers know: which pods exist and which of them
// are active. It serves the device manager and podresources, so it locks itself.
type podTable struct {
	mutex  sync.Mutex
	pods   []*v1.Pod // in order of their admission
	active map[types.UID]bool
}

func newPodTable() *podTable {
	return &podTable{active: map[types.UID]bool{}}
}

// add makes a pod known and active; the kubelet does so before it admits the pod.
func (t *podTable) add(pod *v1.Pod) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if _, known := t.active[pod.UID]; !known {
		t.pods = append(t.pods, pod)
	}
	t.active[pod.UID] = true
}

// end takes a pod from the active ones, as when it failed or its containers have ended.
func (t *podTable) end(uid types.UID) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	delete(t.active, uid)
	for i, pod := range t.pods {
		if pod.UID == uid {
			t.pods = append(t.pods[:i:i], t.pods[i+1:]...)
			return
		}
	}
}

// takeAll empties the table and returns what was active in it: a kubelet that starts knows no pod.
func (t *podTable) takeAll() []*v1.Pod {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	pods := t.pods
	t.pods, t.active = nil, map[types.UID]bool{}
	return pods
}

// GetActivePods implements podresources.PodsProvider.
func (t *podTable) GetActivePods() []*v1.Pod {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return append([]*v1.Pod(nil), t.pods...)
}

// GetPods implements podresources.PodsProvider.
func (t *podTable) GetPods() []*v1.Pod {
	return t.GetActivePods()
}

// GetPodByName implements podresources.PodsProvider.
func (t *podTable) GetPodByName(space, name string) (*v1.Pod, bool) {
	for _, pod := range t.GetActivePods() {
		if pod.Namespace == space && pod.Name == name {
			return pod, true
		}
	}
	return nil, false
}

// makePod returns the pod that a specification means.
func makePod(spec *PodSpec, uid string) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: spec.Name, Namespace: namespace, UID: types.UID(uid),
	}}
	for i := range spec.Containers {
		wanted := &spec.Containers[i]
		container := v1.Container{Name: wanted.Name}
		container.Resources.Limits = v1.ResourceList{}
		// Of a map with two entries Go mostly yields the one first that was put in first.
		ordered := halves[:]
		if (spec.Number+i)%2 == 1 {
			ordered = []Half{memory, core}
		}
		for _, half := range ordered {
			count := wanted.count(half)
			if wanted.Family == "" || (count == 0 && !wanted.Zero) {
				continue
			}
			name := v1.ResourceName(resourceName(wanted.Family, half))
			container.Resources.Limits[name] = *resource.NewQuantity(int64(count), resource.DecimalSI)
		}
		switch wanted.Kind {
		case kindInit:
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, container)
		case kindSidecar:
			always := v1.ContainerRestartPolicyAlways
			container.RestartPolicy = &always
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, container)
		default:
			pod.Spec.Containers = append(pod.Spec.Containers, container)
		}
	}
	return pod
}

// containerOf returns a container of a pod by its name.
func containerOf(pod *v1.Pod, name string) *v1.Container {
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}
