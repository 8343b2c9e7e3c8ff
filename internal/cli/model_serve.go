package cli

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/dfaf701a/nestor/scriptmodel"
)

type modelServeOptions struct {
	script      string // file; empty means the script that echoes the prompt
	addr        string
	allowRemote bool
}

func newModelServe() *cobra.Command {
	var opts modelServeOptions
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve a scripted Messages API",
		Long: `Serve a scripted Messages API, for the Claude CLI or any other client.

It prints the environment that points the CLI at it, as shell lines, then a
line on stderr for each request, until Ctrl-C. Without a script it echoes the
prompt.`,
		Example: "nestor model serve\nnestor model serve --script hello.yaml --addr 127.0.0.1:8080",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			addr, err := net.ResolveTCPAddr("tcp", opts.addr)
			if err != nil {
				return misuse(cmd, "--addr %s: %v", opts.addr, err)
			}
			if !addr.IP.IsLoopback() && !opts.allowRemote {
				return misuse(cmd, "--addr %s is open to other machines; use 127.0.0.1, or add --allow-remote", opts.addr)
			}
			if err := modelServe(cmd.Context(), opts.script, addr, cmd.OutOrStdout(), cmd.ErrOrStderr()); err != nil {
				return fmt.Errorf("model serve: %w", err)
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.script, "script", "", "serve the script in `FILE` (default echo the prompt)")
	flags.StringVar(&opts.addr, "addr", "127.0.0.1:0", "listen on `HOST:PORT`; port 0 takes a free one")
	flags.BoolVar(&opts.allowRemote, "allow-remote", false, "allow an address that other machines can reach")
	return cmd
}

// modelServe blocks until ctx ends, and returns nil then.
func modelServe(ctx context.Context, file string, addr *net.TCPAddr, stdout, stderr io.Writer) error {
	script := scriptmodel.Echo()
	if file != "" {
		var err error
		if script, err = scriptmodel.LoadScript(file); err != nil {
			return err
		}
	}
	ln, err := net.ListenTCP("tcp", addr)
	if err != nil {
		return err
	}
	defer ln.Close()

	base := baseURL(ln.Addr().(*net.TCPAddr))
	var b strings.Builder
	fmt.Fprintf(&b, "# scripted model at %s; Ctrl-C ends it\n", base)
	for _, kv := range scriptmodel.ClientEnv(base) {
		name, value, _ := strings.Cut(kv, "=")
		fmt.Fprintf(&b, "export %s=%s\n", name, shellQuote(value))
	}
	if _, err := io.WriteString(stdout, b.String()); err != nil {
		return err
	}

	var mu sync.Mutex // requests come at once; lines must not mix
	server := scriptmodel.New(script, scriptmodel.Options{
		Keep: -1,
		OnRequest: func(r *scriptmodel.Request) {
			mu.Lock()
			defer mu.Unlock()
			io.WriteString(stderr, requestLine(r))
		},
	})
	return server.Serve(ctx, ln)
}

// baseURL is how clients on this machine reach addr.
func baseURL(addr *net.TCPAddr) string {
	if addr.IP.IsUnspecified() {
		return fmt.Sprintf("http://127.0.0.1:%d", addr.Port)
	}
	return "http://" + addr.String()
}

func requestLine(r *scriptmodel.Request) string {
	line := fmt.Sprintf("%d %s %s %d", r.Seq, r.Method, r.Path, r.Status)
	if r.Model != "" {
		line += fmt.Sprintf(" %s turn %d", r.Model, r.Turn)
	}
	if r.Rule != "" {
		line += fmt.Sprintf(" rule %q", r.Rule)
	}
	if r.Prompt != "" {
		line += fmt.Sprintf(" %.60q", r.Prompt)
	}
	return line + "\n"
}

// shellQuote returns s as one word of a POSIX shell.
func shellQuote(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@%+,", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
