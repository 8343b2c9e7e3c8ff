package daemon

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/dfaf701a/nestor/internal/broker"
	"github.com/dfaf701a/nestor/internal/engine"
)

// maxSocket is the longest name that a Unix socket can have everywhere.
const maxSocket = 100

// SocketPath returns the name of the socket on which the daemon of a project
// answers. It is in the project, unless that makes it too long.
func SocketPath(dir string) string { return socketPath(filepath.Join(dir, ".nestor"), "nestor.sock") }

// AgentSocketPath returns the name of the socket on which the daemon of a project
// answers the processes of its runs.
func AgentSocketPath(dir string) string { return agentSocket(filepath.Join(dir, ".nestor")) }

// agentSocket returns the name of the socket for the processes of runs, of who keeps
// its files in home.
func agentSocket(home string) string { return socketPath(home, "agent.sock") }

func socketPath(home, name string) string {
	if abs, err := filepath.Abs(home); err == nil {
		home = abs
	}
	if name := filepath.Join(home, name); len(name) <= maxSocket {
		return name
	}
	sum := sha256.Sum256([]byte(home))
	// Not os.TempDir: all processes of the user must find it.
	return filepath.Join("/tmp", "nestor-"+strconv.Itoa(os.Getuid()), hex.EncodeToString(sum[:8])+"-"+name)
}

// begin notes that the project has an owner, who is at work. It tells whether an
// earlier one did not come to its end, and returns what takes the note back when
// this one does.
func begin(home string) (left bool, ended func(*error), err error) {
	name := filepath.Join(home, "at-work")
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		left, err = true, nil
	} else if err == nil {
		err = f.Close()
	}
	if err != nil {
		return false, nil, fmt.Errorf("noting the owner of the project: %w", err)
	}
	return left, func(err *error) {
		if *err == nil {
			*err = os.Remove(name)
		}
	}, nil
}

// settled returns what the engine before said when it had left nothing undone; empty
// if that is not known.
func settled(home string, private bool) string {
	if !private {
		return ""
	}
	text, err := os.ReadFile(filepath.Join(home, settledName))
	if err != nil {
		return "" // it is looked for
	}
	return strings.TrimSpace(string(text))
}

const settledName = "settled"

// settle takes note that an engine has left nothing undone, if so. The note is void
// with the next change.
func settle(ctx context.Context, home string, e *engine.Engine) error {
	mark, err := e.Settled(ctx)
	if err != nil || mark == "" {
		return err
	}
	return os.WriteFile(filepath.Join(home, settledName), []byte(mark+"\n"), 0o600)
}

// ignore keeps git from all that is in a project's folder but its config, unless
// somebody has said otherwise there.
func ignore(home string) error {
	f, err := os.OpenFile(filepath.Join(home, ".gitignore"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err == nil {
		_, err = f.WriteString("*\n!/config.yaml\n")
		err = errors.Join(err, f.Close())
	}
	return err
}

// TokenFile returns the file that holds what workers elsewhere show to the broker
// of a project.
func TokenFile(dir string) string { return filepath.Join(dir, ".nestor", "broker.token") }

// listen says how workers elsewhere reach the broker. The token is made the first
// time.
func listen(home, addr string) (broker.Listen, error) {
	host, text, err := net.SplitHostPort(addr)
	if err != nil {
		return broker.Listen{}, fmt.Errorf("broker.listen %q: want host:port: %w", addr, err)
	}
	port, err := strconv.Atoi(text)
	if err != nil || port < 0 || port > 65535 {
		return broker.Listen{}, fmt.Errorf("broker.listen %q: %q is no port", addr, text)
	}
	if port == 0 {
		port = -1 // a free one
	}
	token, err := readToken(filepath.Join(home, "broker.token"))
	if err != nil {
		return broker.Listen{}, err
	}
	return broker.Listen{Host: host, Port: port, Token: token}, nil
}

func readToken(name string) (string, error) {
	data, err := os.ReadFile(name)
	if err == nil && len(strings.TrimSpace(string(data))) >= 16 {
		return strings.TrimSpace(string(data)), nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("reading the broker's token: %w", err)
	}
	token := rand.Text()
	if err := os.WriteFile(name, []byte(token+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("writing the broker's token: %w", err)
	}
	return token, nil
}
