package main

import (
	"encoding/json"
	"os"
)

// Half is one of the two resources of a pair; its value ends the resource's name.
type Half string

const (
	core   Half = "core"
	memory Half = "memory"
)

var halves = [...]Half{core, memory}

func (h Half) other() Half {
	if h == core {
		return memory
	}
	return core
}

// Kinds of containers, in the kubelet's sense.
const (
	kindApp     = "app"
	kindInit    = "init"    // plain: runs to its end before the next; the kubelet reuses its units
	kindSidecar = "sidecar" // restartable init container: stays
)

// ContainerSpec is what one container asks for. A count of 0 is not asked for at all, unless Zero
// says that it stands there as 0.
type ContainerSpec struct {
	Name   string `json:"name"`
	Kind   string `json:"kind"`
	Family string `json:"family,omitempty"` // "" asks for nothing of ours
	Core   int    `json:"core,omitempty"`
	Memory int    `json:"memory,omitempty"`
	Zero   bool   `json:"zero,omitempty"`
	First  Half   `json:"first,omitempty"` // asked first; "" leaves it to Go's map order
}

func (c *ContainerSpec) count(half Half) int {
	if half == core {
		return c.Core
	}
	return c.Memory
}

// asks says whether the container has a slice at all.
func (c *ContainerSpec) asks() bool { return c.Family != "" && (c.Core > 0 || c.Memory > 0) }

// isLone says whether it asks for one half only.
func (c *ContainerSpec) isLone() bool { return c.asks() && (c.Core == 0 || c.Memory == 0) }

// gpus is how many GPUs its slice has.
func (c *ContainerSpec) gpus() int { return max(1, c.Core/coreUnitsPerGPU) }

// PodSpec is a pod to be admitted; init containers and sidecars come before the others. Number is
// unique in a history, Name is not: a StatefulSet gives a name again.
type PodSpec struct {
	Number     int             `json:"number"`
	Name       string          `json:"name"`
	Containers []ContainerSpec `json:"containers"`
}

// Interruption is what happens just before a call of the kubelet goes out, in the midst of admission.
type Interruption struct {
	Call       string `json:"call"`             // "prefer" or "allocate"
	Number     int    `json:"number"`           // counted from 1 within the admission
	End        []int  `json:"end,omitempty"`    // pods that end
	List       bool   `json:"list,omitempty"`   // somebody lists podresources, after those have ended
	Kill       bool   `json:"kill,omitempty"`   // the agent is killed
	KillMicros int    `json:"micros,omitempty"` // so many microseconds after the call went out
}

// What a step does.
const (
	doAdmit   = "admit"           // Pods[0], with Interruption
	doBurst   = "burst"           // Pods one after the other, each started while the next is admitted
	doStart   = "start"           // up to Count containers of pod Number; 0 starts all
	doRestart = "restart"         // container Count of pod Number starts again
	doEnd     = "end"             // pod Number; with List, while somebody lists
	doEndAll  = "end-all"         // every pod; then nothing may be left
	doList    = "list"            // podresources, as another reader of the node does
	doWait    = "wait"            // Millis
	doKubelet = "restart-kubelet" // is away for Millis; API server answers after Slow
	doAgent   = "kill-agent"
)

// Step is one event of a history. It depends on nothing that came of the steps before it, so that any
// part of a history is a history.
type Step struct {
	Do           string        `json:"do"`
	Pods         []*PodSpec    `json:"pods,omitempty"`
	Number       int           `json:"number,omitempty"`
	Count        int           `json:"count,omitempty"`
	Millis       int           `json:"millis,omitempty"`
	Slow         int           `json:"slow,omitempty"`       // milliseconds in which no pod is known
	Registered   bool          `json:"registered,omitempty"` // plugins are back before pods are known
	Interruption *Interruption `json:"interruption,omitempty"`
}

// readHistory returns the steps of a file that a failed run has left, or a list of steps alone.
func readHistory(path string) ([]Step, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var steps []Step
	if err := json.Unmarshal(raw, &steps); err == nil {
		return steps, nil
	}
	var summary Summary
	err = json.Unmarshal(raw, &summary)
	return summary.History, err
}
