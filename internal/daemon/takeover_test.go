package daemon

import (
	"reflect"
	"slices"
	"testing"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
)

// Every bound of what a run's processes use is taken over, also one that is added
// to those that there are.
func TestResumedRunUsesNoMoreThanItDid(t *testing.T) {
	var old resumable
	old.known = true
	bounds := reflect.ValueOf(&old.Options.Resources).Elem()
	for _, field := range bounds.Fields() {
		field.Set(reflect.ValueOf(7).Convert(field.Type()))
	}
	var o api.TaskOptions
	takeOver(&nestor.Task{}, &o, old, func(string) bool { return false })
	if o.Resources != old.Options.Resources {
		t.Errorf("it may use %+v, want %+v", o.Resources, old.Options.Resources)
	}
}

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
