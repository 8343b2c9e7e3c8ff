package daemon_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/sandbox"
	"github.com/dfaf701a/nestor/scriptmodel"
)

// dials returns what was told of a run's connections, in order.
func dials(t *testing.T, client *api.Client, id nestor.ID) (list []*nestor.NetworkDial) {
	t.Helper()
	for e, err := range client.Events(bound(t), id, api.EventsQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		if d, ok := e.(*nestor.NetworkDial); ok {
			list = append(list, d)
		}
	}
	return list
}

func needsOutlet(t *testing.T) {
	t.Helper()
	if err := sandbox.Check().Refuses(sandbox.Strict, sandbox.Hosts); err != nil {
		t.Skip(err)
	}
}

// page serves one page at loopback.
func page(t *testing.T) (port string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "the page for "+r.Host) }))
	t.Cleanup(s.Close)
	_, port, _ = net.SplitHostPort(s.Listener.Addr().String())
	return port
}

// askFor is a command in bash that asks the proxy for a page of a host, and then goes
// there itself.
func askFor(host, port string) string {
	return fmt.Sprintf(`exec 3<>/dev/tcp/127.0.0.1/3128; printf 'GET http://%[1]s:%[2]s/ HTTP/1.1\\r\\n\\r\\n' >&3; cat <&3; (exec 4<>/dev/tcp/127.0.0.1/%[2]s; printf 'GET / HTTP/1.1\\r\\nHost: direct\\r\\nConnection: close\\r\\n\\r\\n' >&4; cat <&4);`, host, port)
}

// A run with a list of hosts reaches these, and nothing else; the CLI, which speaks to
// the model from inside, works; and every connection is on record.
func TestHostsHoldRuns(t *testing.T) {
	needsOutlet(t)
	for _, provider := range []string{"api", "sdk"} {
		t.Run(provider, func(t *testing.T) {
			dir, port := place(t), page(t)
			model := scriptmodel.Start(t, `
rules:
  - turns:
      - tools: [{name: Bash, input: {command: "`+strings.ReplaceAll(askFor("127.0.0.1", port)+askFor("evil.test", port), `"`, `\"`)+` env | grep -i proxy | sort; true", description: try}}]
      - text: "It said: {{.ToolResult}}"`)
			client, end := serving(t, settings{Dir: dir}.with(t, provider, model.URL))
			run := finish(t, client, nestor.Task{Input: "go", Dir: dir, Data: []byte("{" + bypass + `,"hosts":["127.0.0.1:` + port + `"]}`)})
			out := run.Result.Output
			if strings.Count(out, "the page for 127.0.0.1:"+port) != 1 || strings.Contains(out, "the page for direct") || !strings.Contains(out, "evil.test:"+port+" is not among the hosts that may be reached") {
				t.Errorf("it reached what it must not, or did not what it may:\n%s", out)
			}
			if !strings.Contains(out, "HTTPS_PROXY=http://127.0.0.1:3128") || !strings.Contains(out, "http_proxy=http://127.0.0.1:3128") || !strings.Contains(out, "NO_PROXY=\n") {
				t.Errorf("it is not told the way out:\n%s", out)
			}
			var told []string
			for _, d := range dials(t, client, run.ID) {
				if provider == "sdk" && (strings.HasPrefix(d.Rule, "own ") || !strings.HasSuffix(d.Host, ".test") && d.Host != "127.0.0.1") {
					continue // of the CLI itself
				}
				told = append(told, fmt.Sprintf("%s:%d %v %v", d.Host, d.Port, d.Allowed, d.Received > 0))
			}
			slices.Sort(told) // each is on record when it has ended, and the second is refused at once
			if want := []string{"127.0.0.1:" + port + " true true", "evil.test:" + port + " false false"}; !slices.Equal(told, want) {
				t.Errorf("on record is %q, not %q", told, want)
			}
			end()
			if left, err := os.ReadDir(filepath.Join(dir, ".nestor", "tmp")); err == nil && len(left) > 0 {
				t.Errorf("left in the folder for temporary files: %v", left)
			}
		})
	}
}

// What the loop of provider api fetches itself goes the same way, also where it is
// redirected to.
func TestHostsHoldWebFetch(t *testing.T) {
	needsOutlet(t)
	dir, port, elsewhere := place(t), page(t), page(t)
	moved := httptest.NewServer(http.RedirectHandler("http://127.0.0.1:"+elsewhere+"/", http.StatusFound))
	defer moved.Close()
	model := scriptmodel.Start(t, `
rules:
  - turns:
      - tools: [{name: WebFetch, input: {url: "http://127.0.0.1:`+port+`/", prompt: "what is it"}}]
      - text: "First: {{.ToolResult}}"
        tools: [{name: WebFetch, input: {url: "`+moved.URL+`/", prompt: "what is it"}}]
      - text: "Second: {{.ToolResult}}"`)
	client, _ := serving(t, settings{Dir: dir}.with(t, "api", model.URL))
	list := `["127.0.0.1:` + port + `","` + strings.TrimPrefix(moved.URL, "http://") + `"]`
	run := finish(t, client, nestor.Task{Input: "go", Dir: dir, Data: []byte("{" + bypass + `,"hosts":` + list + `}`)})
	var told []string
	for _, d := range dials(t, client, run.ID) {
		told = append(told, fmt.Sprintf("%d %v", d.Port, d.Allowed))
	}
	want := []string{port + " true", moved.URL[strings.LastIndex(moved.URL, ":")+1:] + " true", elsewhere + " false"}
	slices.Sort(want)
	if slices.Sort(told); !slices.Equal(told, want) { // each is told when it is over
		t.Errorf("on record is %q, not %q", told, want)
	}
	if out := run.Result.Output; strings.Contains(out, "Second: the page") || !strings.Contains(out, "is not among the hosts") {
		t.Errorf("it said %s", out)
	}
}

// A child has no host that its parent does not have, and a role that may not use the
// web leaves none.
func TestHostsOfAChild(t *testing.T) {
	needsOutlet(t)
	dir, port := place(t), page(t)
	other := page(t)
	model := scriptmodel.Start(t, `
rules:
  - when: {user: "^child$"}
    turns:
      - tools: [{name: Bash, input: {command: "`+strings.ReplaceAll(askFor("127.0.0.1", port)+askFor("127.0.0.1", other), `"`, `\"`)+` true", description: try}}]
      - text: "The child heard: {{.ToolResult}}"
  - turns:
      - tools: [{name: mcp__nestor__spawn, input: {task: "child", sandbox: "off", hosts: ["127.0.0.1:`+other+`", "127.0.0.1:`+port+`", "*.example.com"]}}]
      - text: "{{.ToolResult}}"`)
	client, _ := serving(t, settings{Dir: dir}.with(t, "api", model.URL))
	run := finish(t, client, nestor.Task{Input: "parent", Dir: dir, Data: []byte("{" + bypass + `,"hosts":["127.0.0.1:` + port + `","api.example.com"]}`)})
	out := run.Result.Output
	if strings.Count(out, "the page for 127.0.0.1:"+port) != 1 || strings.Contains(out, "the page for 127.0.0.1:"+other) ||
		!strings.Contains(out, "127.0.0.1:"+other+" is not among the hosts that may be reached: 127.0.0.1:"+port+", api.example.com") {
		t.Errorf("the child reached what it must not, or did not what it may:\n%s", out)
	}
}

func TestNoHostIsRefused(t *testing.T) {
	dir := place(t)
	client, _ := serving(t, settings{Dir: dir, Provider: "scripted"})
	_, err := client.Submit(t.Context(), api.Submission{Task: nestor.Task{Input: "go", Dir: dir, Data: []byte(`{"hosts":["http://a.org"]}`)}})
	if err == nil || !strings.Contains(err.Error(), `"http://a.org" is no host that can be allowed`) {
		t.Errorf("%v", err)
	}
}
