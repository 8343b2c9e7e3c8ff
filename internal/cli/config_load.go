package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/dfaf701a/nestor/internal/spelling"
	"github.com/dfaf701a/nestor/internal/yamltree"
)

const (
	// maxConfig bounds a file: a project brings its own, and anybody writes projects.
	maxConfig = 64 << 10

	variablePrefix = "NESTOR_"
)

// loadConfig reads the user's file, the project's file over it, then the
// environment, then flags, which are values by key ("limits.max_turns": "3").
// The dir is the project's folder, see projectDir; env is as [os.Environ]
// returns it. Files that are not there are fine. The error tells all that is
// wrong; it is a *usageError where a flag is. What a project wants and the user
// does not trust is wrong, too; see wish.
func loadConfig(dir string, env []string, flags map[string]string) (*config, error) {
	c, untrusted, err := examineConfig(dir, env, flags)
	if err == nil && untrusted != nil {
		var errs []error
		for _, w := range untrusted {
			errs = append(errs, w.err)
		}
		return nil, yamltree.Join(errs)
	}
	return c, err
}

// examineConfig is loadConfig for those who only look: the config holds also what
// is not trusted, and its origin says so.
func examineConfig(dir string, env []string, flags map[string]string) (c *config, untrusted []wish, err error) {
	vars := variables(env)
	files, err := configFiles(dir, vars)
	if err != nil {
		return nil, nil, err
	}
	l := newConfigLoader(vars["HOME"])
	for _, f := range files {
		l.add(l.file(f, false))
	}
	l.checkRoles()
	if len(l.wishes) > 0 && vars[trustVariable] != "1" {
		all, err := readTrusted(trustFile(files))
		l.add(err)
		if all.Projects[files[len(files)-1].path] != fingerprint(l.wishes) {
			untrusted = l.wishes
		}
	}
	for _, w := range untrusted {
		l.config.origins[w.key.name] += ", not trusted"
	}
	here, err := filepath.Abs("")
	l.add(err)
	l.environment(vars, here)
	l.flags(flags, here)
	if l.errs != nil {
		return nil, nil, yamltree.Join(l.errs)
	}
	return l.config, untrusted, nil
}

func variables(env []string) map[string]string {
	vars := map[string]string{}
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		vars[name] = value
	}
	return vars
}

// configFile is a file that is looked at.
type configFile struct {
	owner string // "user" or "project"
	path  string
	shown string // its name in errors and origins
}

// configFiles returns the files in the order in which they are read. There is
// none of the user where the environment does not say where it would be.
func configFiles(dir string, vars map[string]string) ([]configFile, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("finding the project's config: %w", err)
	}
	project := filepath.Join(".nestor", "config.yaml")
	files := []configFile{{"project", filepath.Join(dir, project), filepath.ToSlash(project)}}

	folder := vars["XDG_CONFIG_HOME"]
	if folder == "" && vars["HOME"] != "" {
		folder = filepath.Join(vars["HOME"], ".config")
	}
	if folder == "" {
		return files, nil
	}
	if !filepath.IsAbs(folder) {
		return nil, fmt.Errorf("finding your config: %q is no absolute path; set XDG_CONFIG_HOME or HOME to one", folder)
	}
	user := filepath.Join(folder, "nestor", "config.yaml")
	return append([]configFile{{"user", user, user}}, files...), nil
}

// configLoader fills a config.
type configLoader struct {
	config *config
	home   string
	errs   []error
	wishes []wish                    // of the project's file
	roleAt map[string]*yamltree.Node // where roles begin, by their names
}

func newConfigLoader(home string) *configLoader {
	return &configLoader{config: defaultConfig(), home: home, roleAt: map[string]*yamltree.Node{}}
}

func (l *configLoader) add(err error) {
	if err != nil {
		l.errs = append(l.errs, err)
	}
}

// file reads f. It may be missing, unless it is needed.
func (l *configLoader) file(f configFile, needed bool) error {
	data, mode, err := readConfig(f.path)
	if errors.Is(err, fs.ErrNotExist) && !needed {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", f.shown, err)
	}
	l.parse(f, data, mode)
	return nil
}

// readConfig returns what is in a regular file, up to a little more than
// maxConfig, and its mode.
func readConfig(path string) ([]byte, fs.FileMode, error) {
	info, err := os.Stat(path) // first: to open a pipe would wait for its writer
	if err != nil {
		return nil, 0, plainError(err)
	}
	if !info.Mode().IsRegular() {
		return nil, 0, errors.New("it is no regular file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, plainError(err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	return data, info.Mode(), plainError(err)
}

// plainError leaves the path out, which the caller names.
func plainError(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

// parse reads data, which is what f holds.
func (l *configLoader) parse(f configFile, data []byte, mode fs.FileMode) {
	root, err := yamltree.Parse(f.shown, data, maxConfig)
	if err != nil {
		l.add(err)
		return
	}
	p := &configParser{configLoader: l, file: f, mode: mode, seen: map[string]int{}}
	p.mapping(root, "")
	p.wishForRoles()
}

// configParser reads one file.
type configParser struct {
	*configLoader
	file configFile
	mode fs.FileMode
	seen map[string]int // lines, by key

	roles []wish // about roles
}

// mapping reads the fields of n, whose names continue prefix.
func (p *configParser) mapping(n *yamltree.Node, prefix string) {
	fields, err := n.Fields()
	p.add(err)
	for _, field := range fields {
		name := prefix + field.Key
		k, isKey := findKey(name)
		empty := field.Value.Null() // all in it is commented out
		switch {
		case isKey:
			p.value(k, field)
		case isKeyGroup(name) && (field.Value.Mapping() || empty):
			if !empty {
				p.mapping(field.Value, name+".")
			}
		case isKeyGroup(name):
			p.add(field.Value.Errorf("%q holds keys, such as %s, and is no value itself", name, firstKey(name)))
		case field.Value.Mapping() && hasFields(field.Value):
			p.mapping(field.Value, name+".")
		default:
			p.add(field.Place.Errorf("no key %.100q%s", name, suggestKey(name)))
		}
	}
}

func suggestKey(name string) string {
	if near := nearestKey(name); near != "" {
		return didYouMean("", near)
	}
	return "; run 'nestor config show' for all"
}

func hasFields(n *yamltree.Node) bool {
	fields, _ := n.Fields()
	return len(fields) > 0
}

// firstKey returns the first key of a group.
func firstKey(group string) string {
	for _, k := range configKeys() {
		if strings.HasPrefix(k.name, group+".") {
			return k.name
		}
	}
	return ""
}

// value reads the value of k.
func (p *configParser) value(k configKey, field yamltree.Field) {
	if line, twice := p.seen[k.name]; twice {
		p.add(field.Place.Errorf("the key %q stands here twice; it is in line %d too", k.name, line))
		return
	}
	p.seen[k.name] = field.Place.Line()
	if err := p.allowed(k); err != nil {
		p.add(field.Place.Errorf("%s %w", k.name, err))
		return
	}
	words, err := wordsOf(k, field.Value)
	if err != nil {
		p.add(err)
		return
	}
	at := place{filepath.Dir(p.file.path), p.home}
	if err := k.in(p.config).set(words, at); err != nil {
		p.add(field.Value.Errorf("%s%w", k.saidOf(k.name, words), err))
		return
	}
	if strings.HasPrefix(k.name, rolesPrefix) {
		p.addRole(k, words, field)
	}
	if p.file.owner == "project" && k.wants(words) {
		p.wishes = append(p.wishes, newWish(k, words, field))
	}
	p.came(k, fmt.Sprintf("%s %s:%d", p.file.owner, p.file.shown, field.Place.Line()))
}

// allowed tells why k may not stand in the file.
func (p *configParser) allowed(k configKey) error {
	if k.name == apiKeyKey || k.name == apiKeyFile {
		_, key := p.seen[apiKeyKey]
		_, file := p.seen[apiKeyFile]
		if key && file {
			return errors.New("is the other way to give the key; keep one of the two")
		}
	}
	switch {
	case k.name != apiKeyKey:
		return nil
	case p.file.owner == "project":
		return fmt.Errorf("may not stand in a project, which others read; put it into ANTHROPIC_API_KEY, or into a file that %s names", apiKeyFile)
	case p.mode.Perm()&0o077 != 0 && runtime.GOOS != "windows":
		return fmt.Errorf("may not stand in a file that others can read (mode %04o); run 'chmod 600 %s'", p.mode.Perm(), p.file.path)
	}
	return nil
}

// wordsOf returns what stands in a file as the value of k.
func wordsOf(k configKey, n *yamltree.Node) ([]string, error) {
	s := k.in(defaultConfig())
	wantList := isList(s)
	if n.Null() || n.Mapping() || n.List() != wantList {
		return nil, n.Errorf("%s: want %s, got %s", k.name, s.want(), n.What())
	}
	if wantList {
		return yamltree.All((*yamltree.Node).Text)(n)
	}
	word, err := n.Text()
	return []string{word}, err
}

// saidOf begins a sentence about what was given for k by that name.
func (k configKey) saidOf(name string, words []string) string {
	if k.secret || len(words) != 1 || strings.Contains(words[0], "@") { // a URL may hold a password
		return name + ": "
	}
	return fmt.Sprintf("%s is %.60q: ", name, words[0])
}

// came takes note of where the value of k came from. A key of the API and a
// file that holds one replace each other.
func (l *configLoader) came(k configKey, from string) {
	l.config.origins[k.name] = from
	switch k.name {
	case apiKeyKey:
		l.config.API.APIKeyFile = ""
		delete(l.config.origins, apiKeyFile)
	case apiKeyFile:
		l.config.API.APIKey = ""
		delete(l.config.origins, apiKeyKey)
	}
}

// notConfig are the variables that begin like ours and mean something else.
func notConfig(name string) bool {
	switch name {
	case "SOCKET", "TOKEN", "RUN_ID", "ROOT_ID", "DEPTH", "SESSION_DIR", "SOAK", "SEED", "TOOLS", "TOOLS_TASK", "TRUST_PROJECT":
		return true
	}
	return strings.HasPrefix(name, "SKIP_") || strings.HasPrefix(name, "TEST_")
}

// environment takes what vars say. An empty variable says nothing.
func (l *configLoader) environment(vars map[string]string, dir string) {
	known := map[string]bool{}
	keys := configKeys()
	for _, name := range []func(configKey) string{func(k configKey) string { return k.also }, configKey.variable} {
		for _, k := range keys {
			known[name(k)] = true
			if value := vars[name(k)]; name(k) != "" && value != "" {
				l.word(k, name(k), value, dir, "environment "+name(k))
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		short, ours := strings.CutPrefix(name, variablePrefix)
		if !ours || known[name] || notConfig(short) || vars[name] == "" {
			continue
		}
		best, bestDistance := "", min(2, len(short)/4)+1
		for _, k := range keys {
			if d := spelling.Distance(name, k.variable()); !k.noEnv && d < bestDistance {
				best, bestDistance = k.variable(), d
			}
		}
		if best != "" {
			l.add(fmt.Errorf("environment: no variable %q%s", name, didYouMean("", best)))
		}
	}
}

// flags takes what was given on the command line, by key.
func (l *configLoader) flags(values map[string]string, dir string) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		k, ok := findKey(name)
		switch {
		case !ok:
			l.add(&usageError{fmt.Sprintf("no key %q%s", name, suggestKey(name))})
		case k.name == apiKeyKey:
			l.add(&usageError{"a key on the command line is seen by all who list processes; put it into ANTHROPIC_API_KEY"})
		default:
			before := len(l.errs)
			l.word(k, k.flagName(), values[name], dir, "flag "+k.flagName())
			for i, err := range l.errs[before:] {
				l.errs[before+i] = &usageError{err.Error()}
			}
		}
	}
}

// word sets k to what a variable or a flag of that name says.
func (l *configLoader) word(k configKey, name, value, dir, from string) {
	words := []string{value}
	s := k.in(l.config)
	if isList(s) {
		words = splitList(value)
	}
	if err := s.set(words, place{dir, l.home}); err != nil {
		l.add(fmt.Errorf("%s%w", k.saidOf(name, []string{value}), err))
		return
	}
	l.came(k, from)
}
