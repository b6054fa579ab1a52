{{/* The configs that the values have, as JSON: text by key of the ConfigMap; none where it is not ours. */}}
{{- define "vgpu.configs" -}}
{{- if .Values.existingConfigMap }}{}
{{- else }}
{{- .Values.configs | default (dict "config.yaml" (.Values.config | default (.Files.Get "files/config.yaml"))) | toJson }}
{{- end }}
{{- end }}

{{/* A mapping of a config by the names that lead to it, as JSON; empty where there is none. Takes config and path. */}}
{{- define "vgpu.config-part" -}}
{{- $at := .config }}
{{- range .path }}
{{- $at = kindIs "map" $at | ternary $at dict }}
{{- $at = get $at . }}
{{- end }}
{{- kindIs "map" $at | ternary $at dict | toJson }}
{{- end }}

{{/* The entries of sharing.fractional of a config, as a JSON list. */}}
{{- define "vgpu.config-entries" -}}
{{- $found := list }}
{{- $entries := get (fromJson (include "vgpu.config-part" (dict "config" . "path" (list "sharing")))) "fractional" }}
{{- range kindIs "slice" $entries | ternary $entries list }}
{{- if kindIs "map" . }}{{ $found = append $found . }}{{ end }}
{{- end }}
{{- toJson $found }}
{{- end }}

{{- define "vgpu.labels" -}}
app.kubernetes.io/name: vgpu
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{/* Name, namespace and labels of an object. Takes root, name and, of another than ours, namespace. */}}
{{- define "vgpu.named" -}}
name: {{ .name }}
namespace: {{ .namespace | default .root.Values.namespace.name }}
labels:
  {{- include "vgpu.labels" .root | nindent 2 }}
{{- end }}

{{/* Whose rights a binding gives to whom. Takes root, kind, name and, if it has another name, account. */}}
{{- define "vgpu.granted" -}}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .kind }}
  name: {{ .name }}
subjects:
  - kind: ServiceAccount
    name: {{ .account | default .name }}
    namespace: {{ .root.Values.namespace.name }}
{{- end }}

{{/* Labels that select the pods of one part; they can never change. Takes root and part. */}}
{{- define "vgpu.selector" -}}
app.kubernetes.io/name: vgpu
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{/* Whether a node selects one of several configs: "true" or nothing. */}}
{{- define "vgpu.selects-config" -}}
{{- if or .Values.configs .Values.configSelection.enabled }}true{{ end }}
{{- end }}

{{- define "vgpu.config-map" -}}
{{ .Values.existingConfigMap | default (printf "%s-config" .Release.Name) }}
{{- end }}

{{- define "vgpu.config-path" -}}
/etc/vgpu{{ if not (include "vgpu.selects-config" .) }}/config.yaml{{ end }}
{{- end }}

{{/* How a node selects its config, by the names of NVIDIA's config manager. */}}
{{- define "vgpu.config-selection" -}}
- name: NODE_LABEL
  value: {{ .Values.configSelection.nodeLabel }}
- name: DEFAULT_CONFIG
  value: {{ .Values.configSelection.default | quote }}
- name: FALLBACK_STRATEGIES
  value: {{ join "," .Values.configSelection.fallbackStrategies | quote }}
{{- end }}

{{/* One config of the ConfigMap, with resourceDomain. Takes root, key and text. */}}
{{- define "vgpu.config-entry" -}}
{{ .key }}: |
  {{- .text | trim | nindent 2 }}
  {{- if not (hasKey (fromYaml .text) "resourceDomain") }}
  resourceDomain: {{ .root.Values.resourceDomain }}
  {{- end }}
{{- end }}

{{- define "vgpu.image" -}}
{{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) | quote }}
{{- end }}

{{/* Where our containers see dirs.driver; the driver's own place in containers without a package of it. */}}
{{- define "vgpu.driver-path" -}}
/usr/local/nvidia
{{- end }}

{{/* Variables by which our programs find a driver that no runtime has brought. */}}
{{- define "vgpu.driver-env" -}}
- name: LD_LIBRARY_PATH
  value: {{ include "vgpu.driver-path" . }}/lib64
- name: PATH
  value: /usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:{{ include "vgpu.driver-path" . }}/bin
# CDI specs name the files by where they are on the node.
- name: NVIDIA_DRIVER_ROOT
  value: {{ .Values.dirs.driver }}
{{- end }}

{{- define "vgpu.own-priority-class" -}}
{{ .Values.priorityClass.name | default (printf "%s-critical" .Release.Name) }}
{{- end }}

{{/* The priority class of pods: one of Kubernetes' own gives way to the chart's. Takes root and wanted. */}}
{{- define "vgpu.priority-class" -}}
{{- if and .root.Values.priorityClass.create (hasPrefix "system-" .wanted) -}}
{{ include "vgpu.own-priority-class" .root }}
{{- else -}}
{{ .wanted }}
{{- end }}
{{- end }}

{{/* Puts the pods of a Deployment on several nodes where there are several. Takes root and part. */}}
{{- define "vgpu.apart" -}}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- include "vgpu.selector" . | nindent 14 }}
{{- end }}

{{/* Lets drains end the pods of a Deployment one at a time; nothing where there is one. Takes root, part, name and
replicas. */}}
{{- define "vgpu.one-at-a-time" }}
{{- if gt (int .replicas) 1 }}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "vgpu.named" (dict "root" .root "name" .name) | nindent 2 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels:
      {{- include "vgpu.selector" (dict "root" .root "part" .part) | nindent 6 }}
---
{{- end }}
{{- end }}

{{/* Where both DaemonSets see the run directory, and what else lies on the node: `root`, and the
     `propagation` of mounts. */}}
{{- define "vgpu.run-mounts" -}}
- name: run
  mountPath: {{ .root.Values.dirs.run }}
  mountPropagation: {{ .propagation }}
{{- with .root.Values.dirs.mpsRoot }}
# Links in the run directory lead here, so it is the same path as on the node.
- name: mps-root
  mountPath: {{ . }}
  mountPropagation: {{ $.propagation }}
{{- end }}
{{- with .root.Values.dirs.driver }}
- name: driver
  mountPath: {{ include "vgpu.driver-path" $.root }}
  readOnly: true
{{- end }}
{{- end }}

{{- define "vgpu.node-volumes" -}}
- name: state
  hostPath: {path: {{ .Values.dirs.state }}, type: DirectoryOrCreate}
- name: run
  hostPath: {path: {{ .Values.dirs.run }}, type: DirectoryOrCreate}
{{- with .Values.dirs.mpsRoot }}
- name: mps-root
  hostPath: {path: {{ . }}, type: DirectoryOrCreate}
{{- end }}
{{- with .Values.dirs.driver }}
- name: driver
  hostPath: {path: {{ . }}, type: Directory}
{{- end }}
{{- end }}

{{/* What both DaemonSets ask of the node they run on. */}}
{{- define "vgpu.placing" -}}
priorityClassName: {{ include "vgpu.priority-class" (dict "root" . "wanted" .Values.priorityClassName) }}
{{- with .Values.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
nodeSelector:
  {{- toYaml .Values.nodeSelector | nindent 2 }}
tolerations:
  {{- toYaml .Values.tolerations | nindent 2 }}
{{- end }}

{{/* Makes the run directory a tmpfs of the node. */}}
{{- define "vgpu.run-dir" -}}
# The run directory is a tmpfs of its own, so that what containers write there fills nothing else.
# It is mounted on the node and outlives this pod; one that holds slices already stays as it is.
# Process 1 is the node's (hostPID), and so is its table of mounts. The lock keeps this pod and its
# neighbour from mounting at once; users of the node who are not root must not get it, and the
# kubelet makes the state directory with mode 0755.
- name: run-dir
  image: {{ include "vgpu.image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  command:
    - sh
    - -euc
    - |
      python -c 'import sys, pathlib, libvgpu.closed_files as files
      files.close_directory(pathlib.Path(sys.argv[1]))
      files.open_lock(pathlib.Path(sys.argv[2]))' "$STATE_DIR" "$STATE_DIR/run-dir.lock"
      exec 9<>"$STATE_DIR/run-dir.lock"
      if ! flock -w 60 9; then
          echo "another process has had $STATE_DIR/run-dir.lock for 60 s: lslocks tells which" >&2
          exit 1
      fi
      test -e "$RUN_DIR/allocations" ||
          awk -v dir="$RUN_DIR" '$5 == dir {found = 1} END {exit !found}' /proc/1/mountinfo ||
          mount -t tmpfs -o "mode=0700,nosuid,nodev,noexec,size=$RUN_DIR_SIZE" vgpu "$RUN_DIR"
  env:
    - name: RUN_DIR
      value: {{ .Values.dirs.run }}
    - name: STATE_DIR
      value: {{ .Values.dirs.state }}
    - name: RUN_DIR_SIZE
      value: {{ .Values.runDirSize | trimSuffix "i" | quote }}
  securityContext:
    privileged: true              # mounts
  resources:
    requests: {cpu: 10m, memory: 16Mi}
    limits: {memory: 64Mi}
  volumeMounts:
    - name: run
      mountPath: {{ .Values.dirs.run }}
      mountPropagation: Bidirectional
    - name: state
      mountPath: {{ .Values.dirs.state }}
{{- end }}
