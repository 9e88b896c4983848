{{- define "stockade.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" }}{{ end -}}
{{- end }}

{{- define "stockade.selector" -}}
app.kubernetes.io/name: stockade
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "stockade.labels" -}}
{{ include "stockade.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- /* The StatefulSets, as JSON: name, zone, founders, nodes. */ -}}
{{- define "stockade.sets" -}}
{{- $name := include "stockade.name" . -}}
{{- $sets := list -}}
{{- range .Values.zones -}}
{{- $sets = append $sets (dict "name" (printf "%s-%s" $name .name) "zone" .name "founders" .founders "nodes" .nodes) -}}
{{- end -}}
{{- if not $sets -}}
{{- $sets = list (dict "name" $name "zone" "" "founders" .Values.founders "nodes" .Values.nodes) -}}
{{- end -}}
{{- $founders := 0 -}}
{{- range $sets -}}
{{- if lt (int .nodes) (int .founders) -}}
{{- fail (printf "%s has %d nodes and %d founders: founders are nodes, too" .name (int .nodes) (int .founders)) -}}
{{- end -}}
{{- $founders = add $founders (int .founders) -}}
{{- end -}}
{{- if lt (int $founders) 1 -}}
{{- fail "no zone has a founder" -}}
{{- end -}}
{{- dict "sets" $sets | toJson -}}
{{- end }}

{{- define "stockade.member" -}}
{{- $host := printf "%s.%s-nodes.%s.svc.%s" .node (include "stockade.name" .root) .root.Release.Namespace .root.Values.clusterDomain -}}
[[members]]
node_id = {{ .node | quote }}
url = "{{ ternary "https" "http" .root.Values.tls.enabled }}://{{ $host }}:7101"
raft = "{{ $host }}:7201"
{{- if .zone }}
zone = {{ .zone | quote }}
{{- end }}
{{- end }}

{{- /* kubelet has no client certificate: where one is required, the node asks itself with its own. */ -}}
{{- define "stockade.probe" -}}
{{- if .needs -}}
exec:
  command: [stockade, probe, --path, {{ .path }}]
{{- else -}}
httpGet:
  path: {{ .path }}
  port: http
  scheme: {{ .scheme }}
{{- end -}}
{{- end }}
