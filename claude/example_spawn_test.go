package claude_test

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/dfaf701a/nestor/claude"
)

// container is a CLI behind "docker run".
type container struct {
	name           string
	cmd            *exec.Cmd
	stdin          io.WriteCloser
	stdout, stderr io.ReadCloser
}

func (c *container) Stdin() io.WriteCloser { return c.stdin }
func (c *container) Stdout() io.ReadCloser { return c.stdout }
func (c *container) Stderr() io.ReadCloser { return c.stderr }
func (c *container) Terminate() error      { return c.cmd.Process.Signal(syscall.SIGTERM) }
func (c *container) Kill() error           { return exec.Command("docker", "kill", c.name).Run() }

func (c *container) Wait() claude.Exit {
	state, err := c.cmd.Process.Wait() // Cmd.Wait would close pipes that are still read
	if err != nil {
		return claude.Exit{Code: -1, Err: err}
	}
	return claude.Exit{Code: state.ExitCode()}
}

// inContainer starts the CLI where it sees nothing but the working directory.
func inContainer(ctx context.Context, c claude.Command) (claude.Process, error) {
	p := &container{name: "claude-" + rand.Text()}
	args := []string{"run", "--rm", "--init", "--interactive", "--name", p.name, "--volume", c.Dir + ":/work", "--workdir", "/work"}
	for _, kv := range c.Env {
		name, _, _ := strings.Cut(kv, "=")
		args = append(args, "--env", name) // the value stays off the command line
	}
	p.cmd = exec.Command("docker", append(append(args, "my-claude-image", "claude"), c.Args...)...)
	p.cmd.Env = append(os.Environ(), c.Env...)
	var err1, err2, err3 error
	p.stdin, err1 = p.cmd.StdinPipe()
	p.stdout, err2 = p.cmd.StdoutPipe()
	p.stderr, err3 = p.cmd.StderrPipe()
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	return p, p.cmd.Start()
}

// The CLI in a container. Its protocol is two pipes, so anything that carries
// these will do.
func ExampleProcess() {
	dir, err := os.Getwd()
	if err != nil {
		log.Fatal(err)
	}
	opts := claude.Options{
		Dir:        dir,
		Spawn:      inContainer,
		ReplaceEnv: true, // nothing of this machine but:
		Env:        []string{"ANTHROPIC_API_KEY=" + os.Getenv("ANTHROPIC_API_KEY")},
	}
	for msg, err := range claude.Query(context.Background(), "What is in this folder?", opts) {
		if err != nil {
			log.Fatal(err)
		}
		log.Printf("%T", msg)
	}
}
