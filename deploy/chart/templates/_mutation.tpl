{{/*
How pods are changed: "webhook", or the version of a MutatingAdmissionPolicy; nothing where they are not,
and where they cannot.
*/}}
{{- define "vgpu.mutation.how" -}}
{{- if .Values.mutation.enabled }}
{{- $version := .Values.mutation.apiVersion }}
{{- range $each := list "v1" "v1beta1" "v1alpha1" }}
{{- if and (not $version) ($.Capabilities.APIVersions.Has (printf "admissionregistration.k8s.io/%s/MutatingAdmissionPolicy" $each)) }}
{{- $version = $each }}
{{- end }}
{{- end }}
{{- if eq .Values.mutation.mode "webhook" }}webhook
{{- else if $version }}{{ $version }}
{{- else if eq .Values.mutation.mode "auto" }}webhook
{{- end }}
{{- end }}
{{- end }}

{{/* The resources that make a pod one of ours, each with its domain, as a JSON list. */}}
{{- define "vgpu.mutation.resources" -}}
{{- $names := list }}
{{- range .Values.mutation.resources }}
{{- $names = append $names (contains "/" . | ternary . (printf "%s/%s" $.Values.resourceDomain .)) }}
{{- end -}}
{{ toJson $names }}
{{- end }}

{{/* Whether container `c` asks for one of them. */}}
{{- define "vgpu.mutation.container-asks" -}}
{{- $terms := list }}
{{- range fromJsonArray (include "vgpu.mutation.resources" .) }}
{{- if hasSuffix "*" . }}
{{- $terms = append $terms (printf "name.startsWith('%s')" (trimSuffix "*" .)) }}
{{- else }}
{{- $terms = append $terms (printf "name == '%s'" .) }}
{{- end }}
{{- end -}}
has(c.resources) && has(c.resources.limits) &&
    c.resources.limits.exists(name, {{ join " || " $terms }})
{{- end }}

{{/* Whether a pod asks for one of them. */}}
{{- define "vgpu.mutation.asks" -}}
object.spec.containers.exists(c, {{ include "vgpu.mutation.container-asks" . }}) ||
has(object.spec.initContainers) &&
    object.spec.initContainers.exists(c, {{ include "vgpu.mutation.container-asks" . }})
{{- end }}

{{- define "vgpu.mutation.runtime-class" -}}
{{ .Values.mutation.runtimeClassName | default .Values.runtimeClassName }}
{{- end }}

{{/* A name as part of a JSON pointer. */}}
{{- define "vgpu.mutation.pointer" -}}
{{ . | replace "~" "~0" | replace "/" "~1" }}
{{- end }}

{{/* Whether toleration `t` is the given one. */}}
{{- define "vgpu.mutation.same-toleration" -}}
(has(t.key) ? t.key : '') == '{{ .key | default "" }}' &&
    (has(t.operator) ? t.operator : 'Equal') == '{{ .operator | default "Equal" }}' &&
    (has(t.value) ? t.value : '') == '{{ .value | default "" }}' &&
    (has(t.effect) ? t.effect : '') == '{{ .effect | default "" }}'
{{- end }}

{{/* The fields of a toleration, as an expression has them. */}}
{{- define "vgpu.mutation.fields" -}}
{{- $fields := list }}
{{- range $name, $value := . }}
{{- $fields = append $fields (kindIs "string" $value | ternary (printf "%s: '%v'" $name $value) (printf "%s: %v" $name $value)) }}
{{- end -}}
{{ join ", " $fields }}
{{- end }}
