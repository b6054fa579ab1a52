{{/* What names the extender's objects. */}}
{{- define "vgpu.scheduler.name" -}}
{{ .Release.Name }}-scheduler
{{- end }}

{{/* Where the Lease is by which replicas elect the one that binds: node agents can write nothing there. */}}
{{- define "vgpu.scheduler.election-namespace" -}}
{{ .Values.scheduler.electionNamespace | default (printf "%s-election" (.Values.namespace.name | trunc 54)) }}
{{- end }}

{{/* The certificate, for the templates of _tls.tpl; its first host is what a client checks it by. */}}
{{- define "vgpu.scheduler.tls" -}}
{{- $name := include "vgpu.scheduler.name" . }}
{{- $short := printf "%s.%s" $name .Values.namespace.name }}
{{- dict "name" $name "hosts" (list (printf "%s.svc" $short) $short $name)
    "given" .Values.scheduler.tlsSecret "certManager" .Values.scheduler.certManager | toJson }}
{{- end }}

{{/* The same of the certificate that schedulers show, by an authority of its own. */}}
{{- define "vgpu.scheduler.client" -}}
{{- $name := printf "%s-client" (include "vgpu.scheduler.name" .) }}
{{- /* Of another name than its authority, or it would count as its own. */}}
{{- dict "name" $name "hosts" (list (printf "%s.%s" $name .Values.namespace.name)) "given" .Values.scheduler.clientCertificate.secret | toJson }}
{{- end }}

{{/*
The key of the ConfigMap that the extender reads. It has no node whose label could select one, so of
several it is the one that the values name, the default of the nodes, or the only one; nothing where
none of these is.
*/}}
{{- define "vgpu.scheduler.config-key" -}}
{{- $names := keys .Values.configs | sortAlpha }}
{{- if not (include "vgpu.selects-config" .) }}config.yaml
{{- else if .Values.scheduler.config }}
{{- .Values.scheduler.config }}
{{- else if .Values.configSelection.default }}
{{- .Values.configSelection.default }}
{{- else if eq (len $names) 1 }}
{{- first $names }}
{{- else if has "default" $names }}default
{{- end }}
{{- end }}
