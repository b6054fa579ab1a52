// The judge: it drives the running node agent with the kubelet's own device manager, topology manager
// and podresources server through a random history of pods, and checks after every step, from the
// kubelet's side, that no container got anything but one slice of one GPU that is its own.
//
// It prints one JSON object. Exit status: 0 nothing wrong, 1 a violation, 2 it could not judge. A
// violation comes with the history up to it, which --history plays again.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
)

// verbosity is the one at which the device manager logs the calls that the tap listens for.
const verbosity = "4"

type options struct {
	directory, runDir, pidFile, reader, resources, policy, scope, history, out string
	seed                                                                       uint64
	steps, numaNodes                                                           int
	memoryUnit                                                                 int64
	settle, patience                                                           time.Duration
	wishes                                                                     Wishes
}

func parse() *options {
	o := &options{}
	flag.StringVar(&o.directory, "dir", "", "the kubelet's directory, which the agent was given too")
	flag.StringVar(&o.runDir, "run-dir", "", "the agent's run directory")
	flag.StringVar(&o.pidFile, "agent-pid-file", "",
		"holds the agent's process id, written anew by whoever starts it again; without it the agent "+
			"is not killed")
	flag.StringVar(&o.reader, "reader", "", "command that reads limits files (read_limits.py)")
	flag.StringVar(&o.resources, "resources",
		"nvidia.com/vgpu-core,nvidia.com/vgpu-memory,nvidia.com/mps-core,nvidia.com/mps-memory",
		"what the agent serves")
	flag.StringVar(&o.policy, "policy", "none",
		"of the topology manager: none, best-effort, restricted, single-numa-node")
	flag.StringVar(&o.scope, "scope", "container", "of the topology manager: container, pod")
	flag.IntVar(&o.numaNodes, "numa-nodes", 2, "NUMA nodes of the machine")
	flag.Uint64Var(&o.seed, "seed", 1, "of the history")
	flag.IntVar(&o.steps, "steps", 500, "length of the history")
	flag.StringVar(&o.history, "history", "", "JSON file of a history to play instead")
	flag.StringVar(&o.out, "out", "", "file for the JSON object, besides stdout")
	flag.Int64Var(&o.memoryUnit, "memory-unit", 1<<30, "bytes of one memory unit")
	flag.DurationVar(&o.settle, "settle", 60*time.Second, "by when what ended must be freed")
	flag.DurationVar(&o.patience, "patience", 0,
		"let a refusal of what would fit pass for so long after a pod has ended")
	flag.BoolVar(&o.wishes.Init, "init", false, "plain init containers, whose units are reused")
	flag.BoolVar(&o.wishes.Whole, "whole", false, "requests for whole GPUs")
	flag.BoolVar(&o.wishes.Lone, "lone", false, "requests for core or memory alone")
	flag.BoolVar(&o.wishes.Slow, "slow", false,
		"kubelets that start and know no pod for some seconds, since the API server is away")
	flag.BoolVar(&o.wishes.Ordered, "ordered", false,
		"let the history say which half comes first instead of Go's map order")
	flag.Parse()
	o.wishes.Kill = o.pidFile != ""
	return o
}

func main() {
	o := parse()
	summary, err := judge(o)
	if err != nil {
		fmt.Fprintf(os.Stderr, "judge: seed %d: %v\n", o.seed, err)
		os.Exit(2)
	}
	text, err := json.Marshal(summary)
	if err == nil && o.out != "" {
		err = os.WriteFile(o.out, text, 0o644)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "judge: %v\n", err)
		os.Exit(2)
	}
	fmt.Println(string(text))
	if v := summary.Violation; v != nil {
		fmt.Fprintf(os.Stderr, "judge: seed %d, step %d: %s: %s\n", o.seed, v.Step, v.Rule, v.Text)
		os.Exit(1)
	}
}

// judge runs one history.
func judge(o *options) (*Summary, error) {
	quietly := flag.NewFlagSet("klog", flag.PanicOnError)
	klog.InitFlags(quietly)
	if err := quietly.Set("v", verbosity); err != nil {
		return nil, err
	}
	directory, err := filepath.Abs(o.directory)
	if err != nil || o.directory == "" || o.runDir == "" {
		return nil, fmt.Errorf("--dir and --run-dir are needed")
	}
	reader, err := startReader(o.reader)
	if err != nil {
		return nil, fmt.Errorf("the reader of limits files: %w", err)
	}
	defer reader.stop()
	run := &Run{
		tap: listen(), reader: reader, summary: newSummary(o.seed, o.policy),
		agent:      &Agent{pidFile: o.pidFile, runDir: o.runDir, seen: map[string]time.Time{}},
		memoryUnit: o.memoryUnit, settle: o.settle, patience: o.patience,
		ended: map[string]time.Time{}, amidst: map[string]bool{},
		halfDone: map[string]time.Time{},
		admitted: map[int]bool{}, first: map[types.UID]map[string]Half{},
		families: map[types.UID]map[string]string{}, endedAt: map[string]map[time.Time]int{},
	}
	run.kubelet = &Kubelet{
		directory: directory, resources: strings.Split(o.resources, ","), policy: o.policy,
		scope: o.scope, numaNodes: o.numaNodes, pods: newPodTable(), order: run.order,
	}
	if err := run.kubelet.start(containermap.NewContainerMap()); err != nil {
		return nil, fmt.Errorf("the kubelet does not start: %w", err)
	}
	defer func() { _ = run.kubelet.stop() }()
	run.kubelet.ready.Store(true)
	if _, err := run.kubelet.waitRegistered(); err != nil {
		return nil, err
	}
	run.book = newBook(run.kubelet.manager.GetAllocatableDevices())
	for _, uuid := range bySize(run.book.gpus) {
		run.summary.GPUs = append(run.summary.GPUs, run.book.gpus[uuid])
	}
	var steps []Step
	if o.history != "" {
		if steps, err = readHistory(o.history); err != nil {
			return nil, fmt.Errorf("the history: %w", err)
		}
	} else {
		steps = newGenerator(o.seed, o.wishes, run.book.gpus).history(o.steps)
	}
	began := time.Now()
	err = run.play(steps)
	run.summary.Seconds = time.Since(began).Seconds()
	run.summary.OK = !run.summary.violated()
	if !run.summary.OK {
		run.summary.History = steps[:run.summary.Steps]
	}
	return run.summary, err
}
