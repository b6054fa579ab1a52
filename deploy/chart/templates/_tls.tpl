{{/*
The certificate of a server of ours or of who asks it, one of three: a secret that the values name, one that cert-manager
fills, or one that the chart makes. Each template takes root, name (of the server's objects), hosts,
given (the secret of the values) and certManager (never, where it is left out).
*/}}

{{- define "vgpu.tls.secret" -}}
{{ .given | default (printf "%s-tls" .name) }}
{{- end }}

{{/* What the chart makes, as JSON: ca.crt, tls.crt and tls.key in base64; nothing where it makes none. */}}
{{- define "vgpu.tls.made" -}}
{{- $there := dict }}
{{- if not (or .given .certManager) }}
{{- /* The one that is there is kept, or every upgrade would be a moment without the server. */}}
{{- $there = (lookup "v1" "Secret" .root.Values.namespace.name (include "vgpu.tls.secret" .)).data | default dict }}
{{- if not (and (hasKey $there "ca.crt") (hasKey $there "tls.crt") (hasKey $there "tls.key")) }}
{{- /* By elliptic curves: whoever connects has the server sign, and RSA takes twenty times as long. */}}
{{- $authority := genCAWithKey .name 3650 (genPrivateKey "ecdsa") }}
{{- $made := genSignedCertWithKey (first .hosts) nil .hosts 3650 $authority (genPrivateKey "ecdsa") }}
{{- $there = dict "ca.crt" ($authority.Cert | b64enc) "tls.crt" ($made.Cert | b64enc) "tls.key" ($made.Key | b64enc) }}
{{- end }}
{{- end }}
{{- toJson $there }}
{{- end }}

{{/* The objects, each with a line of dashes behind it. Takes made (what `made` returned) as well. */}}
{{- define "vgpu.tls.objects" -}}
{{- if .given }}
{{- else if .certManager }}
apiVersion: cert-manager.io/v1
kind: Issuer
metadata:
  {{- include "vgpu.named" (dict "root" .root "name" .name) | nindent 2 }}
spec:
  selfSigned: {}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata:
  {{- include "vgpu.named" (dict "root" .root "name" .name) | nindent 2 }}
spec:
  secretName: {{ include "vgpu.tls.secret" . }}
  dnsNames: [{{ join ", " .hosts }}]
  issuerRef:
    name: {{ .name }}
---
{{- else }}
apiVersion: v1
kind: Secret
type: kubernetes.io/tls
metadata:
  {{- include "vgpu.named" (dict "root" .root "name" (include "vgpu.tls.secret" .)) | nindent 2 }}
data:
  {{- range $key, $value := .made }}
  {{ $key }}: {{ $value }}
  {{- end }}
---
{{- end }}
{{- end }}
