package claude

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Sandbox confines the commands that tools run. A nil field leaves the matter
// to Options.Settings and the CLI; write new(true) and new(false). Deny lists
// add to those of the settings, other lists replace them.
type Sandbox struct {
	Enabled             *bool `json:"enabled,omitempty"`
	FailIfUnavailable   *bool `json:"failIfUnavailable,omitempty"`        // nil with Enabled means true
	AutoAllowBash       *bool `json:"autoAllowBashIfSandboxed,omitempty"` // sandboxed commands need no question
	AllowUnsandboxed    *bool `json:"allowUnsandboxedCommands,omitempty"` // Claude may ask to leave the sandbox
	WeakerNestedSandbox *bool `json:"enableWeakerNestedSandbox,omitempty"`

	ExcludedCommands []string            `json:"excludedCommands,omitzero"` // run outside
	IgnoreViolations map[string][]string `json:"ignoreViolations,omitempty"`
	Network          *SandboxNetwork     `json:"network,omitempty"`
	Filesystem       *SandboxFilesystem  `json:"filesystem,omitempty"`
	Credentials      *SandboxCredentials `json:"credentials,omitempty"`

	// Extra holds the keys that this type has no field for, such as
	// "ripgrep". It does not override a field that is set.
	Extra map[string]json.RawMessage `json:"-"`
}

// SandboxNetwork says what sandboxed commands reach.
type SandboxNetwork struct {
	AllowedDomains          []string    `json:"allowedDomains,omitzero"`
	DeniedDomains           []string    `json:"deniedDomains,omitzero"`
	StrictAllowlist         *bool       `json:"strictAllowlist,omitempty"`
	AllowManagedDomainsOnly *bool       `json:"allowManagedDomainsOnly,omitempty"`
	AllowUnixSockets        []string    `json:"allowUnixSockets,omitzero"`
	AllowAllUnixSockets     *bool       `json:"allowAllUnixSockets,omitempty"`
	AllowLocalBinding       *bool       `json:"allowLocalBinding,omitempty"`
	AllowMachLookup         []string    `json:"allowMachLookup,omitzero"`
	HTTPProxyPort           int         `json:"httpProxyPort,omitempty"`
	SOCKSProxyPort          int         `json:"socksProxyPort,omitempty"`
	TLSTerminate            *SandboxTLS `json:"tlsTerminate,omitempty"`
}

// SandboxTLS is the certificate with which the sandbox reads TLS traffic.
type SandboxTLS struct {
	CACert string `json:"caCertPath,omitempty"`
	CAKey  string `json:"caKeyPath,omitempty"`
}

// SandboxFilesystem says what sandboxed commands read and write.
type SandboxFilesystem struct {
	AllowWrite                []string `json:"allowWrite,omitzero"`
	DenyWrite                 []string `json:"denyWrite,omitzero"`
	DenyRead                  []string `json:"denyRead,omitzero"`
	AllowRead                 []string `json:"allowRead,omitzero"`
	AllowManagedReadPathsOnly *bool    `json:"allowManagedReadPathsOnly,omitempty"`
	Disabled                  *bool    `json:"disabled,omitempty"`
}

// SandboxCredentials says which secrets sandboxed commands do not see.
type SandboxCredentials struct {
	Files                []SecretFile     `json:"files,omitzero"`
	EnvVars              []SecretVariable `json:"envVars,omitzero"`
	AllowPlaintextInject *bool            `json:"allowPlaintextInject,omitempty"`
	AWSPairs             json.RawMessage  `json:"awsPairs,omitempty"`
	SigV4                json.RawMessage  `json:"sigv4,omitempty"`
}

// SecretFile is a file with a secret in it.
type SecretFile struct {
	Path string `json:"path"`
	Mode string `json:"mode"` // deny or mask
	SecretMask
	MaskDuplicates *bool `json:"maskDuplicates,omitempty"`
}

// SecretVariable is an environment variable that holds a secret.
type SecretVariable struct {
	Name string `json:"name"`
	Mode string `json:"mode"` // deny or mask
	SecretMask
}

// SecretMask says how a secret is masked and who is sent the real one.
type SecretMask struct {
	Extract          string   `json:"extract,omitempty"`
	OnExtractNoMatch string   `json:"onExtractNoMatch,omitempty"` // deny, error or warn
	Decode           string   `json:"decode,omitempty"`           // jwt
	MaskClaims       []string `json:"maskClaims,omitempty"`
	InjectHosts      []string `json:"injectHosts,omitempty"`
}

// object returns the sandbox as a JSON object.
func (s *Sandbox) object() (map[string]any, error) {
	raw, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	object, err := decodeObject(raw)
	if err != nil {
		return nil, err
	}
	for key, value := range s.Extra {
		if _, ok := object[key]; ok {
			continue
		}
		var v any
		if err := decodeNumbers(value, &v); err != nil {
			return nil, fmt.Errorf("its Extra[%q]: %w", key, err)
		}
		object[key] = v
	}
	return object, nil
}

// settingsJSON returns settings with the sandbox merged into them.
func settingsJSON(settings string, sandbox *Sandbox) (string, error) {
	object := map[string]any{}
	if strings.TrimSpace(settings) != "" {
		if !strings.HasPrefix(strings.TrimSpace(settings), "{") {
			return "", badOption("Sandbox and Settings: Settings is the path of a file, which Sandbox cannot be merged into; give its content, or put the sandbox into it")
		}
		var err error
		if object, err = decodeObject([]byte(settings)); err != nil {
			return "", badOption("Settings: %w", err)
		}
	}
	over, err := sandbox.object()
	if err != nil {
		return "", badOption("Sandbox: %w", err)
	}
	under, _ := object["sandbox"].(map[string]any)
	object["sandbox"] = mergeSandbox(under, over)
	merged, err := json.Marshal(object)
	return string(merged), err
}

// mergeSandbox merges the sandbox of the options over the one of the settings
// by the rules of the TypeScript SDK 0.3.325.
func mergeSandbox(under, over map[string]any) map[string]any {
	merged := mergeObjects("", under, over)
	loosenFilesystem(merged, over)
	loosenProxies(merged, over)
	if _, said := merged["failIfUnavailable"]; merged["enabled"] == true && !said {
		// A missing sandbox would otherwise run everything outside of it.
		merged["failIfUnavailable"] = true
	}
	return merged
}

// Lists that are joined, and objects that are replaced as a whole.
var (
	joinedLists = []string{
		"filesystem.denyRead", "filesystem.denyWrite", "network.deniedDomains",
		"credentials.files", "credentials.envVars",
	}
	wholeObjects = []string{"ripgrep", "network.tlsTerminate"}
)

func mergeObjects(path string, under, over map[string]any) map[string]any {
	merged := maps.Clone(under)
	if merged == nil {
		merged = map[string]any{}
	}
	for key, value := range over {
		at := strings.TrimPrefix(path+"."+key, ".")
		switch v := value.(type) {
		case map[string]any:
			if old, ok := merged[key].(map[string]any); ok && !slices.Contains(wholeObjects, at) {
				value = mergeObjects(at, old, v)
			}
		case []any:
			if old, ok := merged[key].([]any); ok && slices.Contains(joinedLists, at) {
				value = joinLists(old, v)
			}
		}
		merged[key] = value
	}
	return merged
}

func joinLists(a, b []any) []any {
	joined := []any{} // never nil: null is no list
	seen := map[string]bool{}
	for _, v := range slices.Concat(a, b) {
		text, err := json.Marshal(v) // objects have their keys sorted
		if err == nil && seen[string(text)] {
			continue
		}
		seen[string(text)] = true
		joined = append(joined, v)
	}
	return joined
}

// loosenFilesystem drops a switched-off filesystem layer that came from the
// settings when the options want that layer to do something.
func loosenFilesystem(merged, over map[string]any) {
	fs, ok := over["filesystem"].(map[string]any)
	_, own := fs["disabled"]
	if own || !ok && !deniesFile(over) {
		return
	}
	if m, ok := merged["filesystem"].(map[string]any); ok && m["disabled"] == true {
		m = maps.Clone(m)
		delete(m, "disabled")
		merged["filesystem"] = m
	}
}

func deniesFile(over map[string]any) bool {
	credentials, _ := over["credentials"].(map[string]any)
	files, _ := credentials["files"].([]any)
	return slices.ContainsFunc(files, func(f any) bool {
		file, _ := f.(map[string]any)
		return file["mode"] == "deny"
	})
}

// loosenProxies drops proxies that came from the settings when the options
// decide about domains: they would decide in another place.
func loosenProxies(merged, over map[string]any) {
	net, _ := over["network"].(map[string]any)
	_, allowed := net["allowedDomains"]
	denied, _ := net["deniedDomains"].([]any)
	if !allowed && len(denied) == 0 && net["strictAllowlist"] != true {
		return
	}
	m := maps.Clone(merged["network"].(map[string]any))
	for _, port := range []string{"httpProxyPort", "socksProxyPort"} {
		if _, own := net[port]; !own {
			delete(m, port)
		}
	}
	merged["network"] = m
}

// decodeObject reads a JSON object and keeps its numbers as they are written.
func decodeObject(raw []byte) (map[string]any, error) {
	var object map[string]any
	if err := decodeNumbers(raw, &object); err != nil {
		return nil, err
	}
	if object == nil {
		return nil, errors.New("null is not a JSON object")
	}
	return object, nil
}

func decodeNumbers(raw []byte, v any) error {
	if err := json.Unmarshal(raw, new(json.RawMessage)); err != nil {
		return err // also when something follows the value
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	return d.Decode(v)
}
