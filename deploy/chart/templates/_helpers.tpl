{{/* Values that do not go together are refused here, with a message. */}}
{{- define "vgpu.check" -}}
{{- range $name, $text := .Values.configs | default (dict "" .Values.config) }}
{{- $where := empty $name | ternary "config" (printf "configs.%s" $name) }}
{{- $domain := get (fromYaml $text) "resourceDomain" | default $.Values.resourceDomain }}
{{- if ne $domain $.Values.resourceDomain }}
{{- fail (printf "resourceDomain is %s, but %s in %s: the policy needs it too, so set it in the values" $.Values.resourceDomain $domain $where) }}
{{- end }}
{{- $root := get (get (fromYaml $text) "flags" | default dict) "mpsRoot" | default "" }}
{{- if and $root (ne (trimSuffix "/" $root) $.Values.dirs.mpsRoot) }}
{{- fail (printf "flags.mpsRoot is %s in %s, but dirs.mpsRoot is %q: the pods must mount it, so set it in dirs.mpsRoot and leave it out of the config" $root $where $.Values.dirs.mpsRoot) }}
{{- end }}
{{- with get (fromYaml $text) "Error" }}
{{- fail (printf "%s is not YAML: %s" $where .) }}
{{- end }}
{{- end }}
{{- if and .Values.configs .Values.existingConfigMap }}
{{- fail "configs and existingConfigMap exclude each other: put the configs into your ConfigMap and set configSelection.enabled" }}
{{- end }}
{{- if and .Values.configSelection.enabled (not .Values.configs) (not .Values.existingConfigMap) }}
{{- fail "configSelection is enabled, but there are no configs to select from: set configs or existingConfigMap" }}
{{- end }}
{{- if and .Values.scheduler.enabled (not (dig "publish" true .Values.agent)) }}
{{- fail "scheduler.enabled needs what the nodes publish: set agent.publish to true as well" }}
{{- end }}
{{- with .Values.configSelection.default }}
{{- if and $.Values.configs (not (hasKey $.Values.configs .)) }}
{{- fail (printf "configSelection.default is %s, which is none of configs: %s" . (keys $.Values.configs | sortAlpha | join ", ")) }}
{{- end }}
{{- end }}
{{- $dirs := .Values.dirs }}
{{- if or (hasPrefix (printf "%s/" $dirs.run) $dirs.state) (hasPrefix (printf "%s/" $dirs.state) $dirs.run) (eq $dirs.run $dirs.state) }}
{{- fail (printf "dirs.run (%s) and dirs.state (%s) must not lie in each other: one is emptied at a reboot, the other survives it" $dirs.run $dirs.state) }}
{{- end }}
{{- with $dirs.driver }}
{{- $driver := regexReplaceAll "^/var/run/" (printf "%s/" .) "/run/" }}
{{- range $name := list "run" "state" "kubelet" }}
{{- $other := regexReplaceAll "^/var/run/" (printf "%s/" (get $dirs $name)) "/run/" }}
{{- if or (hasPrefix $driver $other) (hasPrefix $other $driver) }}
{{- fail (printf "dirs.driver (%s) and dirs.%s (%s) must not lie in each other: the first belongs to whatever installs the driver, the other to this chart or the kubelet" $dirs.driver $name (get $dirs $name)) }}
{{- end }}
{{- end }}
{{- if $.Values.runtimeClassName }}
{{- fail (printf "dirs.driver is %s and runtimeClassName is %s: either NVIDIA's runtime brings the driver or this directory is mounted, so leave one of them empty" $dirs.driver $.Values.runtimeClassName) }}
{{- end }}
{{- end }}
{{- with $dirs.mpsRoot }}
{{- $root := regexReplaceAll "^/var/run/" (printf "%s/" .) "/run/" }}
{{- range $name := list "run" "state" "kubelet" }}
{{- $other := regexReplaceAll "^/var/run/" (printf "%s/" (get $dirs $name)) "/run/" }}
{{- if or (hasPrefix $root $other) (hasPrefix $other $root) }}
{{- fail (printf "dirs.mpsRoot (%s) and dirs.%s (%s) must not lie in each other, since what is in the latter is made and removed by others; leave dirs.mpsRoot empty or give a path elsewhere" $dirs.mpsRoot $name (get $dirs $name)) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "vgpu.labels" -}}
app.kubernetes.io/name: vgpu
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
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

{{/* What both DaemonSets ask of the node they run on. */}}
{{- define "vgpu.placing" -}}
priorityClassName: {{ .Values.priorityClassName }}
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
# neighbour from mounting at once.
- name: run-dir
  image: {{ include "vgpu.image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  command:
    - flock
    - {{ .Values.dirs.state }}/run-dir.lock
    - sh
    - -euc
    - |
      test -e "$RUN_DIR/allocations" ||
          awk -v dir="$RUN_DIR" '$5 == dir {found = 1} END {exit !found}' /proc/1/mountinfo ||
          mount -t tmpfs -o "mode=0700,nosuid,nodev,noexec,size=$RUN_DIR_SIZE" vgpu "$RUN_DIR"
  env:
    - name: RUN_DIR
      value: {{ .Values.dirs.run }}
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
