{{/*
What values.schema.json cannot say: values that do not go together. Each template writes a line for each
of them, with what it is, why it cannot be, and which value to set. `vgpu.validate` refuses them all at once.
What only a look at the cluster tells is not refused but told in NOTES.txt (`vgpu.warnings`).
*/}}
{{- define "vgpu.validate" -}}
{{- $found := list }}
{{- range $part := list "configs" "selection" "namespace" "priority" "dirs" "policy" "mutation" "webhook" "scheduler" }}
{{- $found = concat $found (include (printf "vgpu.validate.%s" $part) $ | trim | splitList "\n") }}
{{- end }}
{{- with without $found "" }}
{{- fail (printf "these values cannot be together:\n- %s" (join "\n- " .)) }}
{{- end }}
{{- end }}

{{- define "vgpu.validate.configs" -}}
{{- range $key, $text := fromJson (include "vgpu.configs" .) }}
{{- $where := empty $.Values.configs | ternary "config" (printf "configs.%s" $key) }}
{{- $config := fromYaml $text }}
{{- with get $config "Error" }}
{{ $where }} is not YAML: {{ . | replace "\n" " " }}
{{- else }}
{{- include "vgpu.validate.one-config" (dict "root" $ "where" $where "config" $config) }}
{{- end }}
{{- end }}
{{- end }}

{{/* Takes root, where (how messages call the config) and config. */}}
{{- define "vgpu.validate.one-config" -}}
{{- $where := .where }}{{ $values := .root.Values }}{{ $labels := $values.labels }}
{{- range $name := list "flags" "labels" "sharing" }}
{{- $part := get $.config $name }}
{{- if not (or (kindIs "map" $part) (empty $part)) }}
{{ $name }} in {{ $where }} is {{ toJson $part | trunc 40 }}, where a mapping belongs: write its keys below it; `vgpuctl config validate FILE` checks all of a config
{{- end }}
{{- end }}
{{- $flags := include "vgpu.config-part" (dict "config" .config "path" (list "flags")) | fromJson }}
{{- $plugin := include "vgpu.config-part" (dict "config" .config "path" (list "flags" "plugin")) | fromJson }}
{{- $domain := get .config "resourceDomain" | default $values.resourceDomain | toString }}
{{- if ne $domain $values.resourceDomain }}
resourceDomain is {{ $values.resourceDomain }}, but {{ $domain }} in {{ $where }}: the policy needs it too, so set it in the values
{{- end }}
{{- $root := get $flags "mpsRoot" | default "" | toString }}
{{- if and $root (ne (trimSuffix "/" $root) $values.dirs.mpsRoot) }}
flags.mpsRoot is {{ $root }} in {{ $where }}, but dirs.mpsRoot is {{ quote $values.dirs.mpsRoot }}: the pods must mount it, so set it in dirs.mpsRoot and leave it out of the config
{{- end }}
{{- $families := list }}
{{- range fromJsonArray (include "vgpu.config-entries" .config) }}
{{- $families = append $families (toString .family) }}
{{- end }}
{{- $mps := get (include "vgpu.config-part" (dict "config" .config "path" (list "sharing" "mps")) | fromJson) "resources" }}
{{- if and (not $values.mps.enabled) (or (has "mps" $families) $mps) }}
mps.enabled is false, but {{ $where }} shares GPUs through MPS: nobody would start its daemons and every such container would wait, so set mps.enabled to true or take {{ empty $mps | ternary "family mps" "sharing.mps" }} out of the config
{{- end }}
{{- $target := get (include "vgpu.config-part" (dict "config" .config "path" (list "labels")) | fromJson) "writeTo" | default "auto" | toString }}
{{- if and (or (get $flags "useNodeFeatureAPI") (eq $target "node-feature")) (not $labels.nodeFeatureApi) }}
{{ $where }} has labels written by NodeFeature objects, but labels.nodeFeatureApi is false: the agent would have no right to, so set labels.nodeFeatureApi to true
{{- end }}
{{- if and (eq $target "node") (not $labels.patchNode) }}
labels.writeTo is node in {{ $where }}, but labels.patchNode is false: the agent would have no right to, so set labels.patchNode to true
{{- end }}
{{- if and (eq $target "file") (not $labels.featuresDir) }}
labels.writeTo is file in {{ $where }}, but labels.featuresDir is empty: no file would leave the agent's container, so set labels.featuresDir
{{- end }}
{{- with get (include "vgpu.config-part" (dict "config" .config "path" (list "flags" "gfd")) | fromJson) "outputFile" }}
{{- if and (ne (dir .) $labels.featuresDir) (or (eq $target "file") (and (eq $target "auto") (not (get $flags "useNodeFeatureAPI")))) }}
flags.gfd.outputFile is {{ . }} in {{ $where }}, but labels.featuresDir is {{ quote $labels.featuresDir }}: the file would stay in the agent's container, so set labels.featuresDir to {{ dir . }}
{{- end }}
{{- end }}
{{- $directory := get $plugin "cdiSpecDir" | default "" | toString }}
{{- if and $directory (ne (include "vgpu.validate.path" (trimSuffix "/" $directory)) (include "vgpu.validate.path" $values.cdi.directory)) }}
flags.plugin.cdiSpecDir is {{ $directory }} in {{ $where }}, but cdi.directory is {{ quote $values.cdi.directory }}: the specs would stay in the agent's container, so set cdi.directory to {{ trimSuffix "/" $directory }}
{{- end }}
{{- range $strategy := kindIs "slice" (get $plugin "deviceListStrategy") | ternary (get $plugin "deviceListStrategy") (list (get $plugin "deviceListStrategy")) }}
{{- if and (hasPrefix "cdi-" (toString $strategy)) (not $values.cdi.directory) }}
deviceListStrategy is {{ $strategy }} in {{ $where }}, but cdi.directory is empty: the agent could write no spec for the runtime, so set cdi.directory, usually to /var/run/cdi
{{- end }}
{{- end }}
{{- end }}

{{- define "vgpu.validate.selection" -}}
{{- $selection := .Values.configSelection }}
{{- $given := list }}
{{- range $name := list "config" "configs" "existingConfigMap" }}
{{- if get $.Values $name }}{{ $given = append $given $name }}{{ end }}
{{- end }}
{{- if gt (len $given) 1 }}
config, configs and existingConfigMap exclude each other, and {{ join " and " $given }} are set: only the {{ has "existingConfigMap" $given | ternary "ConfigMap" "configs" }} would be read, so put all into one of them (an existingConfigMap with several needs configSelection.enabled) and set the others to "" or null
{{- end }}
{{- if and $selection.enabled (not .Values.configs) (not .Values.existingConfigMap) }}
configSelection is enabled, but there are no configs to select from: set configs or existingConfigMap
{{- end }}
{{- with $selection.default }}
{{- if not (include "vgpu.selects-config" $) }}
configSelection.default is {{ . }}, but nodes select no config: set configs, or for an existingConfigMap with several configSelection.enabled
{{- else if and $.Values.configs (not (hasKey $.Values.configs .)) }}
configSelection.default is {{ . }}, which is none of configs: {{ keys $.Values.configs | sortAlpha | join ", " }}
{{- end }}
{{- end }}
{{- end }}

{{- define "vgpu.validate.namespace" -}}
{{- $space := .Values.namespace }}
{{- if and $space.create (ne $space.name .Release.Namespace) (has $space.name (list "default" "kube-node-lease" "kube-public" "kube-system")) }}
namespace.create is true, but every cluster has {{ $space.name }} already: Helm can only make what is not there, and would remove it with the release, so set namespace.create to false
{{- end }}
{{- end }}

{{- define "vgpu.validate.priority" -}}
{{- if and .Values.priorityClass.name (not .Values.priorityClass.create) }}
priorityClass.name is {{ .Values.priorityClass.name }}, but priorityClass.create is false: nobody would make or use it, so set priorityClass.create to true, or give a class that is there as priorityClassName
{{- end }}
{{- end }}

{{/* A path as it is compared: /var/run is a link to /run, and a slash ends it. */}}
{{- define "vgpu.validate.path" -}}
{{- regexReplaceAll "^/var/run/" (printf "%s/" .) "/run/" }}
{{- end }}

{{- define "vgpu.validate.dirs" -}}
{{- $dirs := .Values.dirs }}
{{- $rows := list
    (list "dirs.run" $dirs.run "dirs.state" $dirs.state "one is emptied at a reboot, the other survives it; leave both as they are or give paths elsewhere")
    (list "dirs.run" $dirs.run "dirs.kubelet" $dirs.kubelet "the kubelet removes what it does not know there; leave dirs.run as it is or give a path elsewhere")
    (list "dirs.state" $dirs.state "dirs.kubelet" $dirs.kubelet "the kubelet removes what it does not know there; leave dirs.state as it is or give a path elsewhere") }}
{{- range $name := list "run" "state" "kubelet" }}
{{- $rows = append $rows (list "dirs.mpsRoot" $dirs.mpsRoot (printf "dirs.%s" $name) (get $dirs $name) "what is in the latter is made and removed by others; leave dirs.mpsRoot empty or give a path elsewhere") }}
{{- $rows = append $rows (list "dirs.driver" $dirs.driver (printf "dirs.%s" $name) (get $dirs $name) "the first belongs to whatever installs the driver, the other to this chart or the kubelet; give the directory that the driver is in, or leave dirs.driver empty") }}
{{- range $other, $path := dict "cdi.directory" $.Values.cdi.directory "labels.featuresDir" $.Values.labels.featuresDir }}
{{- $rows = append $rows (list $other $path (printf "dirs.%s" $name) (get $dirs $name) "other programs read the former, and the latter is nobody else's; give another path") }}
{{- end }}
{{- end }}
{{- range $row := $rows }}
{{- if index $row 1 }}
{{- $one := include "vgpu.validate.path" (index $row 1) }}{{ $other := include "vgpu.validate.path" (index $row 3) }}
{{- if or (hasPrefix $one $other) (hasPrefix $other $one) }}
{{ index $row 0 }} ({{ index $row 1 }}) and {{ index $row 2 }} ({{ index $row 3 }}) must not lie in each other: {{ index $row 4 }}
{{- end }}
{{- end }}
{{- end }}
{{- if and $dirs.driver .Values.runtimeClassName }}
dirs.driver is {{ $dirs.driver }} and runtimeClassName is {{ .Values.runtimeClassName }}: either NVIDIA's runtime brings the driver or this directory is mounted, so leave one of them empty
{{- end }}
{{- $state := include "vgpu.validate.path" $dirs.state }}
{{- range list "/run/" "/tmp/" "/dev/" }}
{{- if hasPrefix . $state }}
dirs.state is {{ $dirs.state }}, which a reboot empties: what containers have must survive it, so set dirs.state to a path on a disk, such as /var/lib/vgpu
{{- end }}
{{- end }}
{{- end }}

{{- define "vgpu.validate.policy" -}}
{{- if and .Values.policy.strictVisibleDevices.enabled (not .Values.policy.enabled) }}
policy.strictVisibleDevices is enabled, but policy.enabled is false: no policy would be made, so set policy.enabled to true
{{- end }}
{{- end }}

{{- define "vgpu.validate.mutation" -}}
{{- $mutation := .Values.mutation }}
{{- $least := dict "v1" "1.36" "v1beta1" "1.34" "v1alpha1" "1.32" }}
{{- $version := $mutation.apiVersion }}
{{- if not $mutation.enabled }}
{{- else if and (eq $mutation.mode "webhook") $version }}
mutation.mode is webhook, but mutation.apiVersion is {{ $version }}, which is of a policy: set mutation.mode to policy or leave mutation.apiVersion empty
{{- else if and (eq $mutation.mode "policy") (not (include "vgpu.mutation.how" .)) }}
mutation.mode is policy, but this cluster serves no MutatingAdmissionPolicy: set mutation.mode to webhook or auto, or mutation.apiVersion where Helm cannot ask the cluster
{{- else if and $version (not (.Capabilities.APIVersions.Has (printf "admissionregistration.k8s.io/%s/MutatingAdmissionPolicy" $version))) (semverCompare (printf "<%s-0" (get $least $version)) .Capabilities.KubeVersion.Version) }}
mutation.apiVersion is {{ $version }}, but Kubernetes has MutatingAdmissionPolicy {{ $version }} from {{ get $least $version }} on, and this is {{ .Capabilities.KubeVersion.Version }}: set mutation.mode to webhook and leave mutation.apiVersion empty, or tell `helm template` the cluster's version by --kube-version
{{- end }}
{{- end }}

{{/* Takes path (of the values) and values. */}}
{{- define "vgpu.validate.tls" -}}
{{- if and .values.tlsSecret .values.certManager }}
{{ .path }}.tlsSecret is {{ .values.tlsSecret }}, and {{ .path }}.certManager is true: only one of them can have the certificate, so leave tlsSecret empty or set certManager to false
{{- end }}
{{- end }}

{{- define "vgpu.validate.webhook" -}}
{{- if eq (include "vgpu.mutation.how" .) "webhook" }}
{{- $webhook := .Values.mutation.webhook }}
{{- include "vgpu.validate.tls" (dict "path" "mutation.webhook" "values" $webhook) }}
{{- include "vgpu.validate.ports" (dict "path" "mutation.webhook" "values" $webhook) }}
{{- if and $webhook.clientCA (not (hasPrefix "-----BEGIN CERTIFICATE-----" $webhook.clientCA)) }}
mutation.webhook.clientCA is no certificate in PEM, which begins with -----BEGIN CERTIFICATE-----: set it as it is in the file, not in base64
{{- end }}
{{- if and $webhook.tlsSecret (not $webhook.caBundle) (not $webhook.certManager) }}
mutation.webhook.tlsSecret is {{ $webhook.tlsSecret }}, but mutation.webhook.caBundle is empty: the API server would not trust the webhook and leave pods as they are, so set mutation.webhook.caBundle to the certificate (PEM) of who signed it
{{- end }}
{{- if $webhook.caBundle }}
{{- if not $webhook.tlsSecret }}
mutation.webhook.caBundle is set, but mutation.webhook.tlsSecret is empty: the certificate would be another one, so set mutation.webhook.tlsSecret too, or leave both empty
{{- else if not (contains "-----BEGIN CERTIFICATE-----" $webhook.caBundle) }}
mutation.webhook.caBundle is no certificate in PEM, which begins with -----BEGIN CERTIFICATE-----: set it as it is in the file, not in base64
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "vgpu.validate.ports" }}
{{- if eq (int .values.port) (int .values.probePort) }}
{{ .path }}.port and {{ .path }}.probePort are {{ .values.port }}: let them differ
{{- end }}
{{- end }}

{{- define "vgpu.validate.scheduler" -}}
{{- $scheduler := .Values.scheduler }}
{{- if $scheduler.enabled }}
{{- include "vgpu.validate.tls" (dict "path" "scheduler" "values" $scheduler) }}
{{- if not .Values.agent.publish }}
scheduler.enabled needs what the nodes publish: set agent.publish to true as well
{{- end }}
{{- if eq $scheduler.electionNamespace .Values.namespace.name }}
scheduler.electionNamespace is {{ $scheduler.electionNamespace }}, where node agents write Leases, so that any of them could stop all binding: leave it empty, or name another namespace
{{- end }}
{{- include "vgpu.validate.ports" (dict "path" "scheduler" "values" $scheduler) }}
{{- $names := keys .Values.configs | sortAlpha }}
{{- if and $scheduler.config (not (include "vgpu.selects-config" .)) }}
scheduler.config is {{ $scheduler.config }}, but there is one config without a name: leave scheduler.config empty, or set configs, or for an existingConfigMap with several configSelection.enabled
{{- else if and $scheduler.config $names (not (has $scheduler.config $names)) }}
scheduler.config is {{ $scheduler.config }}, which is none of configs: {{ join ", " $names }}
{{- else if not (include "vgpu.scheduler.config-key" .) }}
scheduler.enabled with several configs and no default among them: set scheduler.config to the name of the one whose quotas hold
{{- end }}
{{- $ours := dict "address" "scheduler.port" "advertise" "nothing" "bind" "scheduler.bind" "client-ca" "scheduler.clientCertificate" "config" "scheduler.config" "election-namespace" "scheduler.electionNamespace" "gpu-policy" "scheduler.gpuPolicy" "lease" "nothing" "namespace" "namespace.name" "no-bind" "scheduler.bind" "node-policy" "scheduler.nodePolicy" "plain-http" "nothing" "pod-selector" "scheduler.podSelector" "probe-address" "scheduler.probePort" "shown-tls-dir" "scheduler.clientCertificate" "tls-dir" "scheduler.tlsSecret" }}
{{- range $argument := $scheduler.extraArgs }}
{{- $name := trimPrefix "--" $argument | splitList "=" | first }}
{{- with get $ours $name }}
scheduler.extraArgs has {{ $argument }}, which would differ from what the other objects of the chart go by: leave it out{{ if ne . "nothing" }} and set {{ . }}{{ end }}
{{- end }}
{{- if and (eq $name "no-leader-elect") $scheduler.bind (gt (int $scheduler.replicas) 1) }}
scheduler.extraArgs has --no-leader-elect, but scheduler.replicas is {{ $scheduler.replicas }}: each would bind pods without knowing of the others, so leave it out or set scheduler.replicas to 1
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* What only a look at the cluster tells, for NOTES.txt: a line for each. `helm template` looks at none. */}}
{{- define "vgpu.warnings" -}}
{{- range $value, $kind := dict "podMonitor" "PodMonitor" "prometheusRule" "PrometheusRule" }}
{{- if and (get $.Values $value).enabled (not ($.Capabilities.APIVersions.Has (printf "monitoring.coreos.com/v1/%s" $kind))) }}
{{ $value }}.enabled is true, but this cluster serves no {{ $kind }}: install the Prometheus Operator first, or set {{ $value }}.enabled to false
{{- end }}
{{- end }}
{{- $managed := and .Values.scheduler.enabled .Values.scheduler.certManager | ternary (list "scheduler") list }}
{{- if and (eq (include "vgpu.mutation.how" .) "webhook") .Values.mutation.webhook.certManager }}
{{- $managed = append $managed "mutation.webhook" }}
{{- end }}
{{- range $managed }}
{{- if not ($.Capabilities.APIVersions.Has "cert-manager.io/v1/Certificate") }}
{{ . }}.certManager is true, but this cluster serves no Certificate: install cert-manager first, or set {{ . }}.certManager to false
{{- end }}
{{- end }}
{{- if or (not .Values.namespace.create) (eq .Values.namespace.name .Release.Namespace) }}
The namespace {{ .Values.namespace.name }} is not the chart's. Where Pod Security is enforced, label it: kubectl label namespace {{ .Values.namespace.name }} pod-security.kubernetes.io/enforce=privileged
{{- end }}
{{- $scheduler := .Values.scheduler }}
{{- if and $scheduler.enabled $scheduler.bind (not (and .Values.networkPolicy.enabled .Values.networkPolicy.from.scheduler)) (not $scheduler.clientCertificate.required) }}
Every pod of the cluster reaches the port of the scheduler extender, which binds pods: name the schedulers in networkPolicy.from.scheduler and set networkPolicy.enabled, set scheduler.clientCertificate.required to true, or set scheduler.bind to false
{{- end }}
{{- $strategies := .Values.configSelection.fallbackStrategies }}
{{- if and .Values.configs (not .Values.configSelection.default) (not (and (has "named" $strategies) (hasKey .Values.configs "default"))) (not (and (has "single" $strategies) (eq (len .Values.configs) 1))) (not (has "empty" $strategies)) }}
A node without the label {{ .Values.configSelection.nodeLabel }} has no config: set configSelection.default to one of {{ keys .Values.configs | sortAlpha | join ", " }}, or label every node
{{- end }}
{{- end }}
