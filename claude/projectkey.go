package claude

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf16"

	"golang.org/x/text/unicode/norm"
)

// maxProjectKey is where the CLI cuts a project key and adds a hash instead.
const maxProjectKey = 200

// ProjectKey returns the name of the folder in which the CLI keeps the
// sessions of dir: its resolved path with everything but ASCII letters and
// digits made a dash, and a hash in place of what goes beyond 200 characters.
// It is also the project of a [SessionKey]. An empty dir means the current
// one. Different directories may share a key.
func ProjectKey(dir string) string {
	return pathKey(canonicalDir(dir))
}

// canonicalDir resolves dir as the CLI does before it makes a key of it: the
// real path if there is one, in Unicode's composed form.
func canonicalDir(dir string) string {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	return norm.NFC.String(dir)
}

// pathKey makes a key of a path that is canonical already. The CLI counts and
// hashes UTF-16 units, so a character outside the basic plane is two dashes.
func pathKey(path string) string {
	units := utf16.Encode([]rune(path))
	var key strings.Builder
	var hash int32
	for _, u := range units {
		hash = hash*31 + int32(u)
		if u >= 'a' && u <= 'z' || u >= 'A' && u <= 'Z' || u >= '0' && u <= '9' {
			key.WriteByte(byte(u))
		} else {
			key.WriteByte('-')
		}
	}
	if key.Len() <= maxProjectKey {
		return key.String()
	}
	return key.String()[:maxProjectKey] + "-" + hashSuffix(hash)
}

func hashSuffix(hash int32) string {
	h := int64(hash)
	if h < 0 {
		h = -h
	}
	return strconv.FormatInt(h, 36)
}

// truncatedPrefix returns what all keys that were cut like key start with, or
// "" if key was not cut. The hash behind it was another one in older CLIs.
func truncatedPrefix(key string) string {
	if len(key) <= maxProjectKey {
		return ""
	}
	return key[:maxProjectKey+1]
}

var (
	projectNameVariable = pattern(`^[A-Za-z0-9_-]{1,64}$`)
	windowsDevice       = pattern(`(?i)^(con|prn|aux|nul|com[0-9]|lpt[0-9])$`)
)

// projectNameOverride returns the folder name that CLAUDE_CODE_PROJECT_DIR_NAME
// forces on the CLI, or "". The CLI obeys it only when CLAUDE_CONFIG_DIR is set
// too (seen in 2.1.325).
func projectNameOverride() string {
	name := os.Getenv("CLAUDE_CODE_PROJECT_DIR_NAME")
	if !projectNameVariable().MatchString(name) || windowsDevice().MatchString(name) {
		return ""
	}
	return name
}

// claudeConfigDir returns the CLI's configuration folder: dir if given, else
// $CLAUDE_CONFIG_DIR, else ~/.claude.
func claudeConfigDir(dir string) (string, error) {
	if dir == "" {
		dir = os.Getenv("CLAUDE_CONFIG_DIR")
	}
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(home, ".claude")
	}
	return norm.NFC.String(dir), nil
}
