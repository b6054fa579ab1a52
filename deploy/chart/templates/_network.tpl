{{/* Pods of a network policy. Takes root and part. */}}
{{- define "vgpu.network.pods" -}}
podSelector:
  matchLabels:
    {{- include "vgpu.selector" . | nindent 4 }}
{{- end }}

{{/*
Rules for the way to the API server. Names are asked for where the platform gives pods its name instead
of an address, and of a server that may be on the node itself.
*/}}
{{- define "vgpu.network.api-server" -}}
- ports:
    {{- range .Values.networkPolicy.apiServer.ports }}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
  {{- with .Values.networkPolicy.apiServer.cidrs }}
  to:
    {{- range . }}
    - ipBlock: {cidr: {{ . | quote }}}
    {{- end }}
  {{- end }}
- ports:
    - {protocol: UDP, port: 53}
    - {protocol: TCP, port: 53}
{{- end }}
