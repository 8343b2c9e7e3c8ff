package cli

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/permission"
)

// config is what the command line knows after all files, the environment and
// flags. See configKeys for what each value means and what it may be.
type config struct {
	Provider       string            // sdk, api or scripted
	Model          string            // a name, or one of Models; empty means the provider's
	Models         map[string]string // names, by high-tier, medium-tier and low-tier
	Tools          []string          // that exist and need no question; nil means all
	PermissionMode string
	Role           string                         // of runs; empty means none
	Roles          map[string]permission.RoleSpec // own ones, by their names
	Sandbox        string                         // off, files or strict
	Hosts          []string                       // that runs may reach, at strict; nil means that no list bounds them
	Workspace      struct {
		Kind    string   // plain, swarm or worktree; empty chooses
		Base    string   // of worktrees; empty means HEAD
		Setup   []string // a command; nil means none
		Copy    []string // files and folders of the project
		Ports   int
		End     string // keep, merge or drop
		Approve string // none, critic or person
		Age     time.Duration
		Size    int64 // bytes
	}
	Delegation string        // pool or cli
	MaxResult  int           // bytes that go up
	AskFor     time.Duration // that a person may take
	Slots      int
	Limits     nestor.Limits // nothing in it is left open
	Pass       []string      // variables that runs get besides
	Resources  struct {
		Memory    int64 // bytes; zero means no limit, as below
		Processes int
		CPU       time.Duration
		// Processors is how many may be used at once.
		Processors float64
	}
	SDK struct {
		Path     string            // of the CLI; empty means the one that is found
		Env      map[string]string // for the CLI; nil means none
		Settings []string          // setting sources; nil means none
		Warm     int               // CLIs that are kept ready at most
	}
	API struct {
		BaseURL    string // empty means the API's own
		APIKey     string // at most one of it and APIKeyFile is set
		APIKeyFile string
	}
	Script string // file that provider scripted plays; empty means that it echoes
	Broker struct {
		URL         string // empty means the one inside the daemon
		Credentials string // file; empty means none
		Listen      string // host:port; empty means no port
	}
	Label        []string // of the worker inside the daemon
	ArchiveAfter time.Duration

	origins map[string]string // of the values that are not defaults, by key
}

func defaultConfig() *config {
	c := &config{
		Provider: "sdk", PermissionMode: "acceptEdits", Sandbox: "off", Delegation: "pool", MaxResult: 32 << 10, AskFor: 10 * time.Minute, Slots: 5, Limits: nestor.DefaultLimits(), ArchiveAfter: time.Hour,
		Models:  map[string]string{"high-tier": "opus", "medium-tier": "sonnet", "low-tier": "haiku"},
		Roles:   map[string]permission.RoleSpec{},
		origins: map[string]string{},
	}
	c.SDK.Warm = 2
	c.Workspace.End, c.Workspace.Approve, c.Workspace.Age, c.Workspace.Size = "keep", "none", 30*24*time.Hour, 10<<30
	c.Limits.Silence, c.Limits.LimitWait = 5*time.Minute, 6*time.Hour
	return c
}

// origin says where the value of a key came from, such as "default" or
// "project .nestor/config.yaml:7".
func (c *config) origin(name string) string {
	if from := c.origins[name]; from != "" {
		return from
	}
	return "default"
}

// keys returns all keys in the order of the table, and in the place of the one
// for the variables of the CLI those that are set.
func (c *config) keys() (list []configKey) {
	for _, k := range configKeys() {
		if role, cell, ok := roleOf(k.name); ok && role == anyRole {
			for _, own := range slices.Sorted(maps.Keys(c.Roles)) {
				if name := rolesPrefix + own + "." + cell; c.origins[name] != "" {
					one, _ := findRoleKey(name)
					list = append(list, one)
				}
			}
			continue
		}
		if k.name != sdkEnvKey {
			list = append(list, k)
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(c.SDK.Env)) {
			list = append(list, sdkEnvKeyOf(k, name))
		}
	}
	return list
}

// findKey returns the key of that name.
func findKey(name string) (configKey, bool) {
	if k, ok := findRoleKey(name); ok {
		return k, true
	}
	for _, k := range configKeys() {
		if variable, ok := strings.CutPrefix(name, sdkEnvPrefix); ok && k.name == sdkEnvKey {
			return sdkEnvKeyOf(k, variable), true
		}
		if k.name == name {
			return k, true
		}
	}
	return configKey{}, false
}

// isKeyGroup tells whether keys begin with name and a dot.
func isKeyGroup(name string) bool {
	return slices.ContainsFunc(configKeys(), func(k configKey) bool { return strings.HasPrefix(k.name, name+".") })
}

// nearestKey returns the key that name is most likely meant to be, or "".
func nearestKey(name string) string {
	if len(name) > 100 { // no typo
		return ""
	}
	if near := nearestRoleKey(name); near != "" {
		return near
	}
	var names []string
	for _, k := range configKeys() {
		names = append(names, k.name)
	}
	if near := nearest(name, names); near != "" {
		return near
	}
	last := name[strings.LastIndex(name, ".")+1:]
	for _, known := range names {
		if strings.HasSuffix("."+known, "."+last) { // its group is another
			return known
		}
	}
	return ""
}
