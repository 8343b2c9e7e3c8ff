package cli

import (
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
)

func TestVersionOf(t *testing.T) {
	platform := runtime.GOOS + "/" + runtime.GOARCH
	build := &debug.BuildInfo{
		Main: debug.Module{Version: "v1.2.3"},
		Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "8bbdc20"},
			{Key: "vcs.time", Value: "2026-01-02T03:04:05Z"},
			{Key: "vcs.modified", Value: "true"},
		},
	}
	for _, test := range []struct {
		name  string
		build *debug.BuildInfo
		want  string
	}{
		{"stamped", build, "nestor v1.2.3\ncommit    8bbdc20 (modified)\ndate      2026-01-02T03:04:05Z\n"},
		{"not stamped", &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, "nestor devel\ncommit    unknown\ndate      unknown\n"},
		{"no build info", nil, "nestor devel\ncommit    unknown\ndate      unknown\n"},
	} {
		var b strings.Builder
		if err := versionOf(test.build).print(&b); err != nil {
			t.Fatal(err)
		}
		want := test.want + "go        " + runtime.Version() + "\nplatform  " + platform + "\n"
		if b.String() != want {
			t.Errorf("%s: got\n%s\nwant\n%s", test.name, &b, want)
		}
	}
}
