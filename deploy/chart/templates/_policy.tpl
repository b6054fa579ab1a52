{{/*
A list of all containers of a kind, each as what the rules look at: the three kinds have types of their
own, which the API server's type check does not let stand in one list. Takes kind and field.
*/}}
{{- define "vgpu.policy.records" -}}
{{- $list := printf "object.spec.%s" .field -}}
{{ if ne .field "containers" }}(has({{ $list }}) ? {{ end }}{{ $list }}.map(c, {
    'who': dyn('{{ .kind }} ' + c.name),
    'env': dyn(has(c.env) ? c.env.map(e, e.name) : []),
    'paths': dyn((has(c.volumeMounts) ? c.volumeMounts.map(m, m.mountPath) : []) +
        (has(c.volumeDevices) ? c.volumeDevices.map(d, d.devicePath) : [])),
    'privileged': dyn(has(c.securityContext) && has(c.securityContext.privileged) &&
        c.securityContext.privileged ? ['privileged: true'] : []),
    'capabilities': dyn(has(c.securityContext) && has(c.securityContext.capabilities) &&
        has(c.securityContext.capabilities.add) ? c.securityContext.capabilities.add : [])
}){{ if ne .field "containers" }} : []){{ end }}
{{- end }}

{{/*
A list of one: the path named by `path` with a slash before and behind each of its names, and without
what does not change where it leads: more slashes, ".", and /var/run, which leads to /run.
*/}}
{{- define "vgpu.policy.plain" -}}
['/' + path.split('/').filter(s, s != '' && s != '.').map(s, s + '/').join('')]
    .map(p, p.startsWith('/var/run/') ? p.substring(4) : p)
{{- end }}

{{/* Whether an object asks for one of the resources; debug containers cannot. */}}
{{- define "vgpu.policy.asks" -}}
(object.spec.containers.exists(c, {{ include "vgpu.policy.container-asks" . }}) ||
has(object.spec.initContainers) && object.spec.initContainers.exists(c, {{ include "vgpu.policy.container-asks" . }}))
{{- end }}

{{/* The API server takes no such resource without a limit. */}}
{{- define "vgpu.policy.container-asks" -}}
has(c.resources) && has(c.resources.limits) &&
    {{ include "vgpu.policy.names" . }}
        .exists(name, name in c.resources.limits)
{{- end }}

{{- define "vgpu.policy.names" -}}
{{- $names := list }}
{{- range $name := list "vgpu-core" "vgpu-memory" "mps-core" "mps-memory" }}
{{- $names = append $names (printf "'%s/%s'" $.Values.resourceDomain $name) }}
{{- end -}}
[{{ join ", " $names }}]
{{- end }}

{{/*
The directories of the node that no such pod may reach, as `plain` writes them: those of the slices, and
those whose files say what a container gets. Runtimes read CDI files in two places, whoever writes there.
*/}}
{{- define "vgpu.policy.directories" -}}
{{- $dirs := list .Values.dirs.run .Values.dirs.state .Values.dirs.kubelet .Values.dirs.mpsRoot }}
{{- $dirs = concat $dirs (list .Values.cdi.directory "/run/cdi" "/etc/cdi" .Values.labels.featuresDir) }}
{{- $paths := list }}
{{- range $dir := compact $dirs }}
{{- $paths = append $paths (printf "'%s/'" (regexReplaceAll "^/var/run/" $dir "/run/")) }}
{{- end -}}
[{{ join ", " (uniq $paths) }}]
{{- end }}

{{/*
What the policies of slices and of visible devices are asked about: pods that are made, and debug
containers that are added.
*/}}
{{- define "vgpu.policy.rules" -}}
# Nothing else of a pod that matters here can change once it is made. Its labels can, and they shall
# also on pods that were made before the policy.
resourceRules:
  - apiGroups: [""]
    apiVersions: [v1]
    operations: [CREATE]
    resources: [pods]
  - apiGroups: [""]
    apiVersions: [v1]
    operations: [UPDATE]
    resources: [pods/ephemeralcontainers]
{{- end }}

{{/* Leaves out the namespaces of a list, by name. */}}
{{- define "vgpu.policy.exempt" -}}
namespaceSelector:
  matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values:
        {{- toYaml . | nindent 8 }}
{{- end }}

{{/*
A list of the containers of a kind that ask for units, each with how many: what is 0 is not asked for.
Takes root, kind and field.
*/}}
{{- define "vgpu.policy.requests" -}}
{{- $domain := .root.Values.resourceDomain }}
{{- $list := printf "object.spec.%s" .field -}}
{{ if ne .field "containers" }}(has({{ $list }}) ? {{ end }}{{ $list }}.filter(c, {{ include "vgpu.policy.container-asks" .root | nindent 4 | trim }}).map(c, {
    'who': dyn('{{ .kind }} ' + c.name),
    {{- range $half := list "core" "memory" }}
    '{{ $half }}': dyn({
        {{- range $family := list "vgpu" "mps" }}
        {{- $name := printf "'%s/%s-%s'" $domain $family $half }}
        '{{ $family }}': {{ $name }} in c.resources.limits &&
            quantity(c.resources.limits[{{ $name }}]).isInteger() ?
            quantity(c.resources.limits[{{ $name }}]).asInteger() : 0{{ if eq $family "vgpu" }},{{ end }}
        {{- end }}
    }),
    {{- end }}
    'devices': dyn(c.resources.limits.filter(name,
        (name in ['{{ $domain }}/gpu', '{{ $domain }}/gpu.shared'] || name.startsWith('{{ $domain }}/mig-')) &&
        quantity(c.resources.limits[name]).isGreaterThan(quantity('0'))))
}){{ if ne .field "containers" }} : []){{ end }}
{{- end }}

{{/*
Whether core or memory of a family may be asked for alone: "allow" or "forbid". Where the values do not
say it, it is forbidden if every config of the chart that shares the family forbids it. Takes root
and family.
*/}}
{{- define "vgpu.policy.lone-halves" -}}
{{- $said := get .root.Values.policy.loneHalves .family }}
{{- if $said }}{{ $said }}
{{- else }}
{{- $found := list }}
{{- range $text := fromJson (include "vgpu.configs" .root) }}
{{- range fromJsonArray (include "vgpu.config-entries" (fromYaml $text)) }}
{{- if eq (toString .family) $.family }}
{{- $found = append $found (.loneHalves | default "allow" | toString) }}
{{- end }}
{{- end }}
{{- end }}
{{- eq (uniq $found | join ",") "forbid" | ternary "forbid" "allow" }}
{{- end }}
{{- end }}

{{/* The families of which core or memory alone is forbidden, with commas between; or nothing. */}}
{{- define "vgpu.policy.whole-requests" -}}
{{- $families := list }}
{{- range $family := list "vgpu" "mps" }}
{{- if eq (include "vgpu.policy.lone-halves" (dict "root" $ "family" $family)) "forbid" }}
{{- $families = append $families (printf "'%s'" $family) }}
{{- end }}
{{- end -}}
{{ join ", " $families }}
{{- end }}
