package main

import (
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"sort"
	"strings"

	"github.com/spf13/pflag"
	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/cli"
	"helm.sh/helm/v3/pkg/cli/values"
	"helm.sh/helm/v3/pkg/getter"
	"helm.sh/helm/v3/pkg/releaseutil"
)

var source = regexp.MustCompile("# Source: [^/]+/(.+)")

// render does what `helm template` does with the options that the tests give it; helm's command
// itself is no library. test_install.py holds its answers against the command's.
func render(arguments []string) (string, error) {
	var given values.Options
	var versions, show []string
	var kubernetes, namespace string
	flags := pflag.NewFlagSet("template", pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringArrayVarP(&given.ValueFiles, "values", "f", nil, "")
	flags.StringArrayVar(&given.Values, "set", nil, "")
	flags.StringArrayVar(&given.FileValues, "set-file", nil, "")
	flags.StringSliceVar(&versions, "api-versions", nil, "")
	flags.StringArrayVar(&show, "show-only", nil, "")
	flags.StringVar(&kubernetes, "kube-version", "", "")
	flags.StringVarP(&namespace, "namespace", "n", "default", "")
	flags.Bool("create-namespace", false, "")
	if err := flags.Parse(arguments); err != nil {
		return "", err
	}
	install := action.NewInstall(&action.Configuration{Log: func(string, ...any) {}})
	install.DryRun, install.DryRunOption, install.ClientOnly, install.Replace = true, "true", true, true
	install.APIVersions, install.Namespace = versions, namespace
	var err error
	if install.KubeVersion, err = chartutil.ParseKubeVersion(kubernetes); err != nil {
		return "", err
	}
	name, path, err := install.NameAndChart(flags.Args())
	if err != nil {
		return "", err
	}
	install.ReleaseName = name
	merged, err := given.MergeValues(getter.All(cli.New()))
	if err != nil {
		return "", err
	}
	chart, err := loader.Load(path)
	if err != nil {
		return "", err
	}
	release, err := install.Run(chart, merged)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	fmt.Fprintln(&text, strings.TrimSpace(release.Manifest))
	for _, hook := range release.Hooks {
		fmt.Fprintf(&text, "---\n# Source: %s\n%s\n", hook.Path, hook.Manifest)
	}
	if len(show) == 0 {
		return text.String(), nil
	}
	return only(text.String(), show)
}

// only returns those manifests that come from some of the chart's files.
func only(text string, files []string) (string, error) {
	manifests := releaseutil.SplitManifests(text)
	names := make([]string, 0, len(manifests))
	for name := range manifests {
		names = append(names, name)
	}
	sort.Sort(releaseutil.BySplitManifestsOrder(names))
	var shown strings.Builder
	for _, file := range files {
		found := false
		for _, name := range names {
			from := source.FindStringSubmatch(manifests[name])
			if len(from) == 0 {
				continue
			}
			if is, _ := filepath.Match(file, from[1]); is {
				fmt.Fprintf(&shown, "---\n%s\n", manifests[name])
				found = true
			}
		}
		if !found {
			return "", fmt.Errorf("could not find template %s in chart", file)
		}
	}
	return shown.String(), nil
}
