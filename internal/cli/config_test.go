package cli

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// configured makes a project and a home with these files, and returns the
// project's folder and an environment, in which projects are trusted.
func configured(t *testing.T, projectFile, userFile string, env ...string) (string, []string) {
	t.Helper()
	dir, home := t.TempDir(), t.TempDir()
	for path, content := range map[string]string{
		filepath.Join(dir, ".nestor", "config.yaml"):            projectFile,
		filepath.Join(home, ".config", "nestor", "config.yaml"): userFile,
	} {
		if content == "" {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir, append([]string{"HOME=" + home, trustVariable + "=1"}, env...)
}

func TestDefaultsAreComplete(t *testing.T) {
	dir, env := configured(t, "", "")
	c, err := loadConfig(dir, env, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(c, defaultConfig()) || c.Slots != 5 || c.Limits.Turns != 25 || c.Limits.Timeout != 10*time.Minute ||
		c.Limits.Silence != 5*time.Minute || c.Limits.LimitWait != 6*time.Hour || c.Tools != nil || c.Models["low-tier"] != "haiku" {
		t.Errorf("got %+v", c)
	}
	if err := c.Limits.Check(); err != nil {
		t.Error(err)
	}
}

func TestEachSourceGoesOverTheOneBefore(t *testing.T) {
	dir, env := configured(t,
		"limits:\n  max_turns: 3\n  max_depth: 3\n  timeout: 3s\nproviders: {sdk: {env: {A: project, B: project}}}\n",
		"slots: 2\nlimits: {max_turns: 2, max_depth: 2, timeout: 2s, max_children: 2}\nproviders: {sdk: {env: {B: user, C: user}}}\n",
		"NESTOR_LIMITS_MAX_DEPTH=4", "NESTOR_LIMITS_TIMEOUT=4s", "NESTOR_SLOTS=")
	c, err := loadConfig(dir, env, map[string]string{"limits.timeout": "5s"})
	if err != nil {
		t.Fatal(err)
	}
	if l := c.Limits; c.Slots != 2 || l.Children != 2 || l.Turns != 3 || l.Depth != 4 || l.Timeout != 5*time.Second || l.Attempts != 3 {
		t.Errorf("slots are %d, limits %+v", c.Slots, l)
	}
	if want := map[string]string{"A": "project", "B": "project", "C": "user"}; !maps.Equal(c.SDK.Env, want) {
		t.Errorf("the variables of the CLI are %v", c.SDK.Env)
	}
	user := filepath.Join(strings.TrimPrefix(env[0], "HOME="), ".config", "nestor", "config.yaml")
	for key, want := range map[string]string{
		"limits.max_attempts": "default",
		"slots":               "user " + user + ":1",
		"limits.max_children": "user " + user + ":2",
		"limits.max_turns":    "project .nestor/config.yaml:2",
		"limits.max_depth":    "environment NESTOR_LIMITS_MAX_DEPTH",
		"limits.timeout":      "flag --timeout",
		"providers.sdk.env.B": "project .nestor/config.yaml:5",
		"providers.sdk.env.C": "user " + user + ":3",
	} {
		if got := c.origin(key); got != want {
			t.Errorf("%s comes from %q, want %q", key, got, want)
		}
	}
}

// configSamples has a value for each key, and how it is shown.
var configSamples = map[string][2]string{
	"provider":                      {"scripted"},
	"model":                         {"low-tier"},
	"models.high-tier":              {"a"},
	"models.medium-tier":            {"b"},
	"models.low-tier":               {"c"},
	"tools":                         {"Read,Bash(git log,git diff)", "[Read, Bash(git log,git diff)]"},
	"permission_mode":               {"plan"},
	"role":                          {"critic"},
	"sandbox":                       {"strict"},
	"sandbox_hosts":                 {"example.com,a.example.org:8080", "[example.com, a.example.org:8080]"},
	"delegation":                    {"cli"},
	"results.max_bytes":             {"65536"},
	"asks.timeout":                  {"3m"},
	"limits.max_failures":           {"7"},
	"workspace.kind":                {"worktree"},
	"workspace.base":                {"main"},
	"workspace.setup":               {"make,deps", "[make, deps]"},
	"workspace.copy":                {".env,keys", "[.env, keys]"},
	"workspace.ports":               {"3"},
	"workspace.end":                 {"merge"},
	"workspace.approve":             {"critic"},
	"workspace.collect.age":         {"24h"},
	"workspace.collect.size":        {"1024M", "1G"},
	"env.pass":                      {"GOPROXY,AWS_*", "[GOPROXY, AWS_*]"},
	"slots":                         {"7"},
	"roles.name.extends":            {"critic"},
	"roles.name.read":               {"logs"},
	"roles.name.write":              {"project"},
	"roles.name.bash":               {"limited"},
	"roles.name.git":                {"no"},
	"roles.name.web":                {"yes"},
	"roles.name.spawn":              {"yes"},
	"roles.name.tools":              {"Read,mcp__notes", "[Read, mcp__notes]"},
	"roles.name.mode":               {"plan"},
	"roles.name.allow":              {"Bash(git *),Read", "[Bash(git *), Read]"},
	"roles.name.deny":               {"Edit(*.go)", "[Edit(*.go)]"},
	"roles.name.ask":                {"Bash", "[Bash]"},
	"limits.max_turns":              {"1"},
	"limits.timeout":                {"90m", "1h30m"},
	"limits.max_budget_usd":         {"0.5"},
	"limits.max_depth":              {"2"},
	"limits.max_children":           {"2"},
	"limits.max_descendants":        {"2"},
	"limits.max_attempts":           {"2"},
	"limits.max_resumes":            {"2"},
	"limits.backoff":                {"10ms"},
	"limits.silence":                {"0s"},
	"limits.limit_wait":             {"24h"},
	"limits.memory":                 {"2G"},
	"limits.processes":              {"50"},
	"limits.cpu":                    {"5m"},
	"limits.processors":             {"1.5"},
	"providers.sdk.path":            {"claude"},
	"providers.sdk.env.NAME":        {"x"},
	"providers.sdk.setting_sources": {"user,local", "[user, local]"},
	"providers.sdk.warm":            {"3"},
	"providers.api.base_url":        {"https://u:p@example.com/v1", "https://u:xxxxx@example.com/v1"},
	"providers.api.api_key":         {"hush", "(set)"},
	"providers.api.api_key_file":    {"/key"},
	"providers.scripted.script":     {"/a/../b.yaml", "/b.yaml"},
	"broker.url":                    {"nats://a:1,tls://u:p@b:2", "nats://a:1,tls://u:xxxxx@b:2"},
	"broker.credentials":            {"/c"},
	"broker.listen":                 {"127.0.0.1:0"},
	"labels":                        {"gpu,big", "[gpu, big]"},
	"archive_after":                 {"0s"},
}

// Every key can be set in all ways, shows what was set and where, and refuses
// what cannot be meant.
func TestEveryKey(t *testing.T) {
	for _, k := range configKeys() {
		if k.name == "roles.name.hosts" {
			continue // it needs another: see TestRolesInConfig
		}
		t.Run(k.name, func(t *testing.T) {
			sample, ok := configSamples[k.name]
			if !ok {
				t.Fatal("there is no sample")
			}
			value, want := sample[0], sample[1]
			if want == "" {
				want = value
			}
			check := func(c *config, err error, origin string) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
				values := c.values(k.name)
				if len(values) != 1 || valueText(values[0].Value) != want || !strings.HasPrefix(values[0].Origin, origin) {
					t.Errorf("it is shown as %v, want %s from %s", values, want, origin)
				}
				if others := len(c.origins); others != 1 {
					t.Errorf("it changes %d values", others)
				}
			}
			yaml := value
			if isList(k.in(defaultConfig())) {
				yaml = `["` + strings.Join(splitList(value), `", "`) + `"]`
			}
			dir, env := configured(t, "", k.name+": "+yaml+"\n")
			c, err := loadConfig(dir, env, nil)
			check(c, err, "user ")

			dir, env = configured(t, "", "")
			if !k.noEnv {
				c, err = loadConfig(dir, append(env, k.variable()+"="+value), nil)
				check(c, err, "environment "+k.variable())
			}
			if k.also != "" {
				c, err = loadConfig(dir, append(env, k.also+"="+value), nil)
				check(c, err, "environment "+k.also)
			}
			if k.name != apiKeyKey {
				c, err = loadConfig(dir, env, map[string]string{k.name: value})
				check(c, err, "flag "+k.flagName())
			}
			for _, bad := range []string{"[[]]", "{a: b}", "", "\"\\0\"", "[\"\\a\"]"} {
				dir, env := configured(t, k.name+": "+bad+"\n", "")
				if _, err := loadConfig(dir, env, nil); err == nil || !strings.HasPrefix(err.Error(), ".nestor/config.yaml:1:") {
					t.Errorf("%s is taken: %v", bad, err)
				}
			}
			if k.doc == "" || strings.Contains(k.doc, "|") || k.in(defaultConfig()).want() == "" {
				t.Error("it is not explained")
			}
		})
	}
}

func TestConfigErrors(t *testing.T) {
	for _, test := range []struct{ file, want string }{
		{"limit:\n    max_turn: 3\n", `.nestor/config.yaml:2:5: no key "limit.max_turn"; did you mean "limits.max_turns"?`},
		{"max_turns: 3\n", `.nestor/config.yaml:1:1: no key "max_turns"; did you mean "limits.max_turns"?`},
		{"limits:\n  slots: 3\n", `.nestor/config.yaml:2:3: no key "limits.slots"; did you mean "slots"?`},
		{"elephants: 3\n", `.nestor/config.yaml:1:1: no key "elephants"; run 'nestor config show' for all`},
		{"elephants: {}\n", `.nestor/config.yaml:1:1: no key "elephants"`},
		{"limits: 3\n", `.nestor/config.yaml:1:9: "limits" holds keys, such as limits.max_turns, and is no value itself`},
		{"limits: {max_turns: 0}\n", `.nestor/config.yaml:1:21: limits.max_turns is "0": want a whole number, 1 or more`},
		{"slots: -1\n", `.nestor/config.yaml:1:8: slots is "-1": want a whole number, 1 or more`},
		{"slots: 1e3\n", `.nestor/config.yaml:1:8: slots is "1e3": want a whole number, 1 or more`},
		{"slots: 99999999999999999999\n", `.nestor/config.yaml:1:8: slots is "99999999999999999999": want 1000000 at most`},
		{"slots: [1]\n", `.nestor/config.yaml:1:8: slots: want a whole number, 1 or more, got a list`},
		{"limits.timeout: 10\n", `.nestor/config.yaml:1:17: limits.timeout is "10": want a duration, more than 0s, with its unit, such as "10s"`},
		{"limits.timeout: soon\n", `.nestor/config.yaml:1:17: limits.timeout is "soon": want a duration, more than 0s, such as 90s, 10m or 1h30m`},
		{"limits.silence: -1s\n", `.nestor/config.yaml:1:17: limits.silence is "-1s": want a duration, 0s or more`},
		{"limits.max_budget_usd: .nan\n", `.nestor/config.yaml:1:24: limits.max_budget_usd is ".nan": want a number, 0 or more`},
		{"limits.max_budget_usd: inf\n", `.nestor/config.yaml:1:24: limits.max_budget_usd is "inf": want a number, 0 or more`},
		{"workspace.collect.size: much\n", `.nestor/config.yaml:1:25: workspace.collect.size is "much": want a size, such as 512M or 10G`},
		{"workspace.collect.size: 9999999T\n", `.nestor/config.yaml:1:25: workspace.collect.size is "9999999T": want a size, such as 512M or 10G`},
		{"provider: cloud\n", `.nestor/config.yaml:1:11: provider is "cloud": want sdk, api or scripted`},
		{"permission_mode: yolo\n", `.nestor/config.yaml:1:18: permission_mode is "yolo": want default, acceptEdits, bypassPermissions, plan, dontAsk or auto`},
		{"tools: Read\n", `.nestor/config.yaml:1:8: tools: want a list of tools, such as [Read, Bash], got "Read"`},
		{"labels: [a b]\n", `.nestor/config.yaml:1:9: labels is "a b": label "a b": want letters, digits, - and _`},
		{"providers.sdk.setting_sources: [mine]\n", `.nestor/config.yaml:1:32: providers.sdk.setting_sources is "mine": "mine": want user, project or local`},
		{"providers.sdk.env: {1A: x}\n", `.nestor/config.yaml:1:25: providers.sdk.env.1A is "x": "1A" is no name of a variable; want letters, digits and _`},
		{"providers.api.base_url: example.com\n", `.nestor/config.yaml:1:25: providers.api.base_url is "example.com": want a URL, https://…`},
		{"broker.url: http://u:secret@x\n", `.nestor/config.yaml:1:13: broker.url: want a URL, nats://…, or several with commas between`},
		{"broker.listen: here\n", `.nestor/config.yaml:1:16: broker.listen is "here": want HOST:PORT, such as 127.0.0.1:4222`},
		{"slots: 1\nslots: 2\n", `.nestor/config.yaml:2:1: the key "slots" stands here twice; it is in line 1 too`},
		{"limits: {timeout: 1s}\nlimits.timeout: 1s\n", `.nestor/config.yaml:2:1: the key "limits.timeout" stands here twice; it is in line 1 too`},
		{"slots: &a 1\nlimits.max_turns: *a\n", `.nestor/config.yaml:2:19: aliases are not allowed here`},
		{"slots: [\n", `.nestor/config.yaml:`},
		{"- slots\n", `.nestor/config.yaml:1:1: want a mapping of keys to values, got a list`},
		{strings.Repeat("#", maxConfig+1), `.nestor/config.yaml: it has 65537 bytes or more; at most 65536 are read`},
		{"slots: 0\nslts: 1\nprovider: x\n", ".nestor/config.yaml:1:8: slots is \"0\": want a whole number, 1 or more\n" +
			".nestor/config.yaml:2:1: no key \"slts\"; did you mean \"slots\"?\n.nestor/config.yaml:3:11: provider is"},
	} {
		dir, env := configured(t, test.file, "")
		if c, err := loadConfig(dir, env, nil); err == nil || c != nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%.60q: got %v, want %s", test.file, err, test.want)
		}
	}
}

func TestEmptyFilesAreFine(t *testing.T) {
	for _, file := range []string{"# nothing\n", "limits:\n  # max_turns: 3\n", "---\n", "{}"} {
		dir, env := configured(t, file, "")
		if c, err := loadConfig(dir, env, nil); err != nil || !reflect.DeepEqual(c, defaultConfig()) {
			t.Errorf("%q: got %+v, %v", file, c, err)
		}
	}
}

func TestKeysOfTheAPIAreKeptFromOthers(t *testing.T) {
	const inFile = "providers:\n  api:\n    api_key: hush\n"
	refused := func(what, dir string, env []string, flags map[string]string, want string) {
		t.Helper()
		_, err := loadConfig(dir, env, flags)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: got %v, want %s", what, err, want)
		}
	}
	dir, env := configured(t, inFile, "")
	refused("in a project", dir, env, nil, ".nestor/config.yaml:3:5: providers.api.api_key may not stand in a project, which others read; put it into ANTHROPIC_API_KEY, or into a file that providers.api.api_key_file names")
	refused("as a flag", t.TempDir(), env, map[string]string{apiKeyKey: "hush"}, "put it into ANTHROPIC_API_KEY")
	refused("not a key", t.TempDir(), append(env, "ANTHROPIC_API_KEY=hush\n"), nil, "ANTHROPIC_API_KEY: want a key without control characters")

	dir, env = configured(t, "", inFile)
	if c, err := loadConfig(dir, env, nil); err != nil || c.API.APIKey != "hush" {
		t.Errorf("in a file that nobody else reads: %+v, %v", c, err)
	}
	if runtime.GOOS != "windows" {
		user := filepath.Join(strings.TrimPrefix(env[0], "HOME="), ".config", "nestor", "config.yaml")
		if err := os.Chmod(user, 0o640); err != nil {
			t.Fatal(err)
		}
		refused("in a file that others read", dir, env, nil, "(mode 0640); run 'chmod 600 "+user+"'")
	}
	dir, env = configured(t, "", inFile+"    api_key_file: key\n")
	refused("twice", dir, env, nil, ":4:5: providers.api.api_key_file is the other way to give the key; keep one of the two")
}

// Whoever comes later says whether the key or the file counts.
func TestKeyAndFileReplaceEachOther(t *testing.T) {
	dir, env := configured(t, "providers.api.api_key_file: key\n", "providers.api.api_key: hush\n")
	c, err := loadConfig(dir, env, nil)
	if err != nil || c.API.APIKey != "" || c.API.APIKeyFile != filepath.Join(dir, ".nestor", "key") || c.origin(apiKeyKey) != "default" {
		t.Errorf("a file over a key is %+v, %v", c, err)
	}
	c, err = loadConfig(dir, append(env, "ANTHROPIC_API_KEY=loud"), nil)
	if err != nil || c.API.APIKey != "loud" || c.API.APIKeyFile != "" || c.origin(apiKeyKey) != "environment ANTHROPIC_API_KEY" {
		t.Errorf("a key over a file is %+v, %v", c, err)
	}
	c, err = loadConfig(dir, append(env, "ANTHROPIC_BASE_URL=http://a", "NESTOR_PROVIDERS_API_BASE_URL=http://b"), nil)
	if err != nil || c.API.BaseURL != "http://b" {
		t.Errorf("our own variable is %+v, %v", c, err)
	}
}

func TestFilesAreRelativeToWhatNamesThem(t *testing.T) {
	dir, env := configured(t, "providers: {scripted: {script: talk.yaml}, sdk: {path: claude}}\nbroker: {credentials: ~/creds}\n", "")
	c, err := loadConfig(dir, env, nil)
	if err != nil || c.Script != filepath.Join(dir, ".nestor", "talk.yaml") || c.SDK.Path != "claude" ||
		c.Broker.Credentials != filepath.Join(strings.TrimPrefix(env[0], "HOME="), "creds") {
		t.Errorf("got %+v, %v", c, err)
	}
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	c, err = loadConfig(dir, env, map[string]string{"providers.scripted.script": "talk.yaml", "providers.sdk.path": "./claude"})
	if err != nil || c.Script != filepath.Join(here, "talk.yaml") || c.SDK.Path != filepath.Join(here, "claude") {
		t.Errorf("got %+v, %v", c, err)
	}
}

func TestVariablesThatAreAlmostOurs(t *testing.T) {
	dir, env := configured(t, "", "")
	for name, want := range map[string]string{
		"NESTOR_LIMITS_MAX_TURN":  "NESTOR_LIMITS_MAX_TURNS",
		"NESTOR_SLOT":             "NESTOR_SLOTS",
		"NESTOR_LIMIT_MAX_TRUNS":  "",
		"NESTOR_PERMISSIONS_MODE": "NESTOR_PERMISSION_MODE",
		"NESTOR_ELEPHANT":         "",
		"NESTOR_LOGS":             "",
		"NESTOR_TOKEN":            "",
		"NESTOR_TOOLS":            "",
		"NESTOR_SKIP_SLOTS":       "",
		"NESTORSLOTS":             "",
	} {
		_, err := loadConfig(dir, append(env, name+"=x"), nil)
		if want == "" && err != nil || want != "" && (err == nil || err.Error() != `environment: no variable "`+name+`"; did you mean "`+want+`"?`) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := loadConfig(dir, []string{"XDG_CONFIG_HOME=here"}, nil); err == nil || !strings.Contains(err.Error(), `"here" is no absolute path; set XDG_CONFIG_HOME`) {
		t.Errorf("a relative folder: %v", err)
	}
	if _, err := loadConfig(dir, nil, nil); err != nil {
		t.Errorf("without a home: %v", err)
	}
}

func TestWrongFlagsAreMisuse(t *testing.T) {
	dir, env := configured(t, "", "")
	for key, want := range map[string]string{"limits.max_turns": `--max-turns is "x": want a whole number, 1 or more`, "limit.max_turns": `no key "limit.max_turns"; did you mean "limits.max_turns"?`} {
		_, err := loadConfig(dir, env, map[string]string{key: "x"})
		if err == nil || err.Error() != want || codeOf(t.Context(), err) != exitUsage {
			t.Errorf("got %v", err)
		}
	}
	c, err := loadConfig(dir, env, map[string]string{"tools": ""})
	if err != nil || c.Tools == nil || len(c.Tools) != 0 {
		t.Errorf("no tools at all are %v, %v", c, err)
	}
}

func TestWhatIsNoFileIsNotRead(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, ".nestor", "config.yaml"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := loadConfig(dir, nil, nil); err == nil || err.Error() != "reading .nestor/config.yaml: it is no regular file" {
		t.Errorf("got %v", err)
	}
}

func TestProjectDir(t *testing.T) {
	top := t.TempDir()
	for _, dir := range []string{"a/.nestor", "a/b/.git", "a/b/c", "g/.git", "g/h", "n"} {
		if err := os.MkdirAll(filepath.Join(top, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"w/.git", "w/x/.nestor"} { // a worktree, and what is no folder
		if err := os.MkdirAll(filepath.Join(top, filepath.Dir(file)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(top, file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for from, want := range map[string]string{"a": "a", "a/b/c": "a", "g/h": "g", "n": "n", "w/x": "w"} {
		if got, err := projectDir(filepath.Join(top, from)); err != nil || got != filepath.Join(top, want) {
			t.Errorf("the project of %s is %s, %v, want %s", from, got, err, want)
		}
	}
	t.Chdir(filepath.Join(top, "g", "h"))
	if got, err := projectDir(""); err != nil || filepath.Base(got) != "g" {
		t.Errorf("here it is %s, %v", got, err)
	}
	for from, want := range map[string]string{"none": "there is no folder ", "../../w/.git": "is no folder"} {
		if got, err := projectDir(from); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("of %s it is %s, %v", from, got, err)
		}
	}
}

func TestSplitList(t *testing.T) {
	for text, want := range map[string][]string{
		"":                          nil,
		" a , b ,":                  {"a", "b"},
		"Bash(a,b),Read":            {"Bash(a,b)", "Read"},
		"Bash(a,b":                  {"Bash(a,b"},
		"a),b":                      {"a)", "b"},
		"mcp__x__y,Bash(git log:*)": {"mcp__x__y", "Bash(git log:*)"},
	} {
		if got := splitList(text); !slices.Equal(got, want) {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}

func FuzzConfig(f *testing.F) {
	f.Add("limits:\n  max_turns: 3\n  timeout: 90s\ntools: [Read]\n", true)
	f.Add("providers: {sdk: {env: {A: b}, setting_sources: [user]}, api: {api_key: x}}\n", false)
	f.Add("broker: {url: 'nats://a,nats://b', listen: ':0'}\nlabels: [a]\n", true)
	f.Add("limits: &a {b: *a}\n? [x]\n: y\n", true)
	f.Add("providers.sdk.env.A: 1\nproviders: {sdk.env: {A: 2}}\n", true)
	f.Fuzz(func(t *testing.T, text string, user bool) {
		file := configFile{"project", "/p/.nestor/config.yaml", ".nestor/config.yaml"}
		if user {
			file.owner = "user"
		}
		read := func() *configLoader {
			l := newConfigLoader("/h")
			l.parse(file, []byte(text), 0o600)
			return l
		}
		l := read()
		for _, err := range l.errs {
			if !strings.HasPrefix(err.Error(), file.shown+":") {
				t.Fatalf("%v has no place", err)
			}
		}
		if err := l.config.Limits.Check(); err != nil {
			t.Fatal(err)
		}
		for _, v := range l.config.values("") {
			if v.Origin != "default" && !strings.HasPrefix(v.Origin, file.owner+" "+file.shown+":") {
				t.Fatalf("%s comes from %s", v.Key, v.Origin)
			}
		}
		if again := read(); !reflect.DeepEqual(l.config, again.config) || len(l.errs) != len(again.errs) {
			t.Fatal("the same file is read differently")
		}
		if !user && l.config.API.APIKey != "" {
			t.Fatal("a project brings a key")
		}
	})
}
