package daemon

import (
	"slices"
	"testing"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
)

// Who goes on with a run does not get out of its sandbox, nor further than its
// hosts, unless that is given anew.
func TestResumedRunIsConfinedAsItWas(t *testing.T) {
	old := resumable{known: true, Options: api.TaskOptions{Sandbox: "strict", Hosts: []string{"example.com"}}}
	for _, test := range []struct {
		given   []string
		sandbox string
		hosts   []string
	}{
		{nil, "strict", []string{"example.com"}},
		{[]string{"sandbox"}, "off", []string{"example.com"}},
		{[]string{"sandbox", "sandbox_hosts"}, "off", []string{"example.org"}},
	} {
		o := api.TaskOptions{Sandbox: "off", Hosts: []string{"example.org"}}
		takeOver(&nestor.Task{}, &o, old, func(key string) bool { return slices.Contains(test.given, key) })
		if o.Sandbox != test.sandbox || !slices.Equal(o.Hosts, test.hosts) {
			t.Errorf("given %v: sandbox %s, hosts %v", test.given, o.Sandbox, o.Hosts)
		}
	}
}
