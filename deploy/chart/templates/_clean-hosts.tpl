{{/* What makes an object part of the hook. Takes root and weight. */}}
{{- define "vgpu.clean-hosts.hook" -}}
labels:
  {{- include "vgpu.labels" .root | nindent 2 }}
annotations:
  helm.sh/hook: pre-delete
  helm.sh/hook-weight: {{ .weight | quote }}
  # Objects of a hook that succeeded go when all of it has, so the Job's rights live as long as it.
  helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}

{{/* nodeSelector as kubectl's --selector. */}}
{{- define "vgpu.clean-hosts.selector" -}}
{{- $terms := list }}
{{- range $key, $value := .Values.nodeSelector }}
{{- $terms = append $terms (printf "%s=%s" $key $value) }}
{{- end -}}
{{ join "," $terms }}
{{- end }}

{{/* The pod that cleans a node. */}}
{{- define "vgpu.clean-hosts.pod" -}}
apiVersion: v1
kind: Pod
metadata:
  namespace: {{ .Values.namespace.name }}
  labels:
    {{- include "vgpu.selector" (dict "root" . "part" "clean-host") | nindent 4 }}
spec:
  restartPolicy: Never
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: 5
  priorityClassName: {{ include "vgpu.priority-class" (dict "root" . "wanted" .Values.priorityClassName) }}
  # It enters the mounts of the node's first process, and looks whose mounts lead to the slices.
  hostPID: true
  {{- with .Values.image.pullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  tolerations:
    - operator: Exists
  containers:
    - name: clean-host
      image: {{ include "vgpu.image" . }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      command: [python, -m, deviceplugin.cleaning, host]
      args:
        - --run-dir={{ .Values.dirs.run }}
        - --state-dir={{ .Values.dirs.state }}
        {{- with .Values.dirs.mpsRoot }}
        - --mps-root={{ . }}
        {{- end }}
      securityContext:
        privileged: true
      resources:
        {{- toYaml .Values.cleanHosts.resources | nindent 8 }}
{{- end }}
